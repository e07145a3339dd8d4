"""Measure the size of the house, and hold it below its ceiling: `python -m scripts.house [--check]`.

Product code is what git knows of nodectl/ and plugins/. A *fragment* is a module that one other module alone imports,
from the same folder. A *riddle* is a docstring that opens with a preposition or a relative word. The ceiling stands in
pyproject.toml, below [tool.nodectl.ceiling]: who adds more than it leaves takes something away first.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_COLLECTION = "ansible_collections.nodectl.fleet."
_RIDDLE = re.compile(
    r"(Of|As|By|Where|What|Who|Whom|Whose|When|Whether|Which|At|To|From|With|Without|Beside|Until|Unless"
    r"|Nothing|None|Those|That)\b"
)


@dataclass(frozen=True)
class House:
    """A checkout, read through git's list of files."""

    root: Path

    def files(self, *folders: str, suffix: str = ".py") -> list[Path]:
        """Return the tracked files below some folders that are in the working tree."""
        argv = ["git", "ls-files", "-z", *folders]
        listed = subprocess.run(argv, cwd=self.root, capture_output=True, text=True, check=True).stdout.split("\0")
        return [self.root / name for name in listed if name.endswith(suffix) and (self.root / name).is_file()]

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Return the syntax tree of each product module by its dotted name."""
        return {self._dotted(path): ast.parse(path.read_text()) for path in self.files("nodectl", "plugins")}

    def _dotted(self, path: Path) -> str:
        return ".".join(path.relative_to(self.root).with_suffix("").parts)

    def importers(self) -> dict[str, set[str]]:
        """Return, for each product module, the other product modules that import it."""
        by_name = {name.removesuffix(".__init__"): name for name in self.trees}
        users = collections.defaultdict[str, set[str]](set)
        for name, tree in self.trees.items():
            for target in _imports(name, tree):
                module = by_name.get(target.removeprefix(_COLLECTION))
                if module not in (None, name):
                    users[str(module)].add(name)
        return users

    def fragments(self) -> list[str]:
        """Return the modules that one neighbour alone imports, in the order of their names."""
        alone = [(name, next(iter(users))) for name, users in self.importers().items() if len(users) == 1]
        return sorted(name for name, user in alone if _folder(name) == _folder(user))

    def riddles(self) -> list[str]:
        """Return `module: first words` of each docstring that opens with a preposition or a relative word."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        texts = [
            (name, ast.get_docstring(node) or "")
            for name, tree in self.trees.items()
            for node in statements(tree)
            if isinstance(node, kinds)
        ]
        return [f"{name}: {text[:60]}" for name, text in texts if _RIDDLE.match(text)]

    def measure(self) -> dict[str, int]:
        """Return each measured size by its name: lines, files, words and counts."""
        product = self.files("nodectl", "plugins")
        pages = self.files("docs", "README.md", suffix=".md")
        return {
            "product_lines": _lines(product),
            "product_files": len(product),
            "test_lines": _lines(self.files("tests")),
            "other_lines": _lines(self.files("scripts", "benchmarks")),
            "yaml_lines": _lines(self.files("roles", "playbooks", suffix=".yml")),
            "rooms": len({path.parent for path in self.root.glob("nodectl/*/*.py")}),
            "fragments": len(self.fragments()),
            "riddles": len(self.riddles()),
            "docs_pages": len(pages),
            "docs_words": sum(len(page.read_text().split()) for page in pages),
        }


def above(sizes: Mapping[str, int], ceiling: Mapping[str, int]) -> list[str]:
    """Return a sentence for each size that is above its ceiling."""
    return [
        f"{name} is {sizes[name]}, and its ceiling is {limit}: take something away"
        for name, limit in ceiling.items()
        if sizes[name] > limit
    ]


def main(arguments: Iterable[str] | None = None) -> int:
    """Print fragments, riddles and, last, one line of JSON; with --check exit with 1 when a ceiling is passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the ceiling, and print nothing else")
    options = parser.parse_args(None if arguments is None else list(arguments))
    # trees live on: looks for garbage among them take as long as the parsing
    gc.disable()
    house = House(_ROOT)
    sizes = house.measure()
    if options.check:
        failures = above(sizes, read_ceiling())
        print(*failures, sep="\n", end="\n" if failures else "", file=sys.stderr)
        return 1 if failures else 0
    print(*(f"fragment {name}" for name in house.fragments()), sep="\n")
    print(*(f"riddle {text}" for text in house.riddles()), sep="\n")
    print(json.dumps(sizes))
    return 0


def read_ceiling() -> dict[str, int]:
    """Read the ceiling of each size from pyproject.toml."""
    with (_ROOT / "pyproject.toml").open("rb") as file:
        ceiling: dict[str, int] = tomllib.load(file)["tool"]["nodectl"]["ceiling"]
    return ceiling


def _lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the module and every statement in it, however deep; expressions are a dozen times as many."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, part, ())


def _folder(module: str) -> str:
    name = module.removesuffix(".__init__")
    return name.rpartition(".")[0]


def _imports(module: str, tree: ast.Module) -> Iterator[str]:
    package = module.split(".")[:-1]
    for node in statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield stem
            yield from (f"{stem}.{alias.name}" for alias in node.names)


if __name__ == "__main__":
    raise SystemExit(main())

"""The rules of the house about imports, and what the oldest Python on a node can run."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from scripts.house import statements

PACKAGE = Path(__file__).resolve().parent.parent / "nodectl"
# what the build writes is a version and no more
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "_version.py")

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
GROUND = "ground"
BESIDE = "beside"
# every package may use these pure parts of what runs on nodes
SHARED_WITH_NODES = {
    "nodectl.payload.common.frames",
    "nodectl.payload.common.host_lock",
    "nodectl.payload.common.machine",
    "nodectl.payload.common.secret_words",
    "nodectl.payload.jobs.failures",
    "nodectl.payload.jobs.container",
    "nodectl.payload.jobs.job_id",
    "nodectl.payload.jobs.nsys",
    "nodectl.payload.jobs.pace",
    "nodectl.payload.jobs.standing",
    "nodectl.payload.notify.deliver",
    "nodectl.payload.notify.queue",
    "nodectl.workloads.ds_config",
    "nodectl.workloads.meaning",
    "nodectl.workloads.settings",
}
# what the two modules beside the packages import
OUTSIDE = {"__main__": {"cli", "errors"}, "__init__": {"transport"}}
# who may use which library
HOMES = {
    "fabric": {"transport"},
    "paramiko": {"transport"},
    "invoke": {"transport"},
    "click": {"cli"},
    "rich": {"cli"},
    "torch": {"payload", "workloads"},
    "scipy": {"common"},
    "ClusterShell": {"common"},
    "cryptography": {"lab"},
    "torchx": {"torchx"},
    "uv": {"provision"},
    "ansible": {"transport", "provision"},
    "ansible_runner": {"transport", "provision"},
}
ON_NODES = [path for path in FILES if path.relative_to(PACKAGE).parts[0] in ("payload", "workloads")]
# added to Python after 3.8, and easily written by mistake
NEWER_NAMES = {
    *("removeprefix", "removesuffix", "is_relative_to", "with_stem", "hardlink_to", "bit_count", "randbytes"),
    *("pairwise", "batched", "TaskGroup", "to_thread", "StrEnum", "UTC", "unparse", "waitstatus_to_exitcode"),
    *("pidfd_open", "pidfd_send_signal", "lcm"),
}
NEWER_IN_OS = {"unshare", "setns", "eventfd", "splice"}
NEWER_MODULES = {"zoneinfo", "graphlib", "tomllib"}
NEWER_KEYWORDS = {("dataclass", "slots"), ("dataclass", "kw_only"), ("zip", "strict"), ("TemporaryDirectory", "delete")}
GENERICS = {"list", "dict", "set", "frozenset", "tuple", "type", "Popen", "CompletedProcess", "Queue", "SimpleQueue"}


def part(path: Path) -> str:
    """The first folder, or the module's name, below nodectl."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Dotted names that a file imports anywhere in it; relative imports are made absolute."""
    return tuple(imports(path))


def imports(path: Path) -> Iterator[str]:
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = ("nodectl", *path.relative_to(PACKAGE).parts)[: -node.level] if node.level else ()
            module = ".".join([*folder, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def own_parts(path: Path) -> set[str]:
    """The parts of nodectl that a file imports."""
    return {name.split(".")[1] for name in imported(path) if name.startswith("nodectl.")}


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@dataclass(frozen=True, slots=True)
class House:
    """The picture of docs/architecture.md: the number of each package's floor, what it may import, the ground floor."""

    floors: dict[str, int]
    may_import: dict[str, set[str]]
    ground: tuple[str, ...]


def read_picture(text: str) -> House:
    """The lines between `floor  package` and the end of its block; a line without a package goes on with the last."""
    block = text.split("floor  package", 1)[1].split("```", 1)[0].splitlines()[1:]
    floors: dict[str, int] = {}
    may_import: dict[str, set[str]] = {}
    ground: tuple[str, ...] = ()
    floor, package = 0, ""
    for line in block:
        left, words = line[:7].strip(), line[7:].split()
        if left in (GROUND, BESIDE):
            floors |= dict.fromkeys(words, -1)
            ground = tuple(words) if left == GROUND else ground
            # on the ground floor each stands on those after it
            may_import |= {word: set(words[words.index(word) + 1 :]) if left == GROUND else set() for word in words}
            continue
        floor = int(left) if left else floor
        if not line[7:].startswith(" "):
            package, *words = words
            floors[package] = floor
        may_import.setdefault(package, set()).update(word for word in words if word != "-")
    return House(floors, may_import, ground)


HOUSE = read_picture(PICTURE.read_text())
GROUND_FLOOR = set(HOUSE.ground)


def test_every_package_is_drawn_once() -> None:
    there = {part(path) for path in FILES} - {"__init__", "__main__"}
    assert set(HOUSE.floors) == there
    block = PICTURE.read_text().split("floor  package", 1)[1].split("```", 1)[0]
    assert all(len(re.findall(rf"^.{{7}}{package} ", block, re.MULTILINE)) <= 1 for package in there)


def test_every_package_stands_on_lower_floors() -> None:
    above = {
        (package, used)
        for package, floor in HOUSE.floors.items()
        for used in HOUSE.may_import[package]
        if floor >= 0 and HOUSE.floors[used] >= floor
    }
    assert not above


def test_packages_import_only_what_the_picture_shows() -> None:
    assert {name(path): strays for path in FILES if (strays := undrawn(path))} == {}


def undrawn(path: Path) -> set[str]:
    """The packages that a file imports and that the picture does not show below its own."""
    home = part(path)
    names = {each for each in imported(path) if each.startswith("nodectl.")}
    used = {each.split(".")[1] for each in names if not each.startswith(tuple(SHARED_WITH_NODES))}
    used -= {"__version__", "_version", home}
    if home in OUTSIDE:
        return used - OUTSIDE[home]
    ground = GROUND_FLOOR if HOUSE.floors[home] >= 0 else set()
    return used - HOUSE.may_import[home] - ground


def test_the_picture_shows_no_import_that_is_not_there() -> None:
    used: dict[str, set[str]] = {}
    for path in FILES:
        used.setdefault(part(path), set()).update(own_parts(path))
    drawn = {(package, each) for package, others in HOUSE.may_import.items() for each in others}
    assert {(package, each) for package, each in drawn - standing_on_the_ground() if each not in used[package]} == set()


def standing_on_the_ground() -> set[tuple[str, str]]:
    """What the ground floor may import of itself: its order is a rule, whether it is made use of or not."""
    return {(package, each) for package in HOUSE.ground for each in HOUSE.may_import[package]}


def test_no_module_imports_another_that_leads_back_to_it() -> None:
    modules = {dotted(path): path for path in FILES}
    graph = {
        module: {each for used in imported(path) for each in (used, used.rpartition(".")[0]) if each in modules}
        - {module, module.rpartition(".")[0]}
        for module, path in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def dotted(path: Path) -> str:
    """`nodectl.cli.tune.trial`; a package is its folder's name."""
    return ".".join(("nodectl", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def test_libraries_stay_at_home() -> None:
    assert {name(path): strays for path in FILES if (strays := libraries_away(path))} == {}


def libraries_away(path: Path) -> set[str]:
    """The libraries that a file imports outside the packages which may."""
    libraries = {each.split(".")[0] for each in imported(path)}
    strays = {library for library in libraries & set(HOMES) if part(path) not in HOMES[library]}
    return strays - ({"click"} if part(path) == "__main__" else set())  # the entry point hands click's own errors on


@pytest.mark.parametrize("path", [path for path in FILES if part(path) == "model"], ids=name)
def test_the_model_needs_the_standard_library_only(path: Path) -> None:
    assert {name.split(".")[0] for name in imported(path)} <= sys.stdlib_module_names | {"nodectl"}


def test_what_runs_on_nodes_is_python_3_8() -> None:
    assert {name(path): newer for path in ON_NODES if (newer := list(too_new(path.read_text())))} == {}


def too_new(source: str) -> Iterator[str]:
    """What Python 3.8 would refuse or lack, as `line: what`."""
    try:
        tree = ast.parse(source, feature_version=(3, 8))
    except SyntaxError as error:
        yield f"{error.lineno}: {error.msg}"
        return
    if not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        evaluated: Iterator[ast.AST] = ast.walk(tree)
    else:
        evaluated = without_annotations(tree)
    for node in evaluated:
        what = newer(node)
        if what:
            yield f"{getattr(node, 'lineno', 0)}: {what}"


def newer(node: ast.AST) -> str:
    """What is newer than 3.8 in this one node."""
    if isinstance(node, ast.Attribute) and node.attr in NEWER_NAMES:
        return node.attr
    # a libc of ctypes has functions of the same names
    if isinstance(node, ast.Attribute) and node.attr in NEWER_IN_OS and getattr(node.value, "id", "") == "os":
        return f"os.{node.attr}"
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.name for alias in node.names} | ({node.module} if isinstance(node, ast.ImportFrom) else set())
        return ", ".join(str(name) for name in names & (NEWER_MODULES | NEWER_NAMES))
    if isinstance(node, ast.Call):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        return ", ".join(str(word.arg) for word in node.keywords if (called, word.arg) in NEWER_KEYWORDS)
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", getattr(node.value, "attr", "")) in GENERICS:
        return f"{ast.unparse(node)} outside an annotation"
    return ""


def without_annotations(node: ast.AST) -> Iterator[ast.AST]:
    """The tree without what `from __future__ import annotations` leaves unevaluated."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from without_annotations(child)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("match x:\n    case 1: pass\n", "2: Pattern matching is only supported in Python 3.10 and greater"),
        ("def f(a: list[int]) -> None: ...\n", "1: list[int] outside an annotation"),
        ("from __future__ import annotations\nX = dict[str, int]\n", "2: dict[str, int] outside an annotation"),
        ("'a'.removeprefix('b')\n", "1: removeprefix"),
        ("from itertools import pairwise\n", "1: pairwise"),
        ("import os\nos.unshare(1)\n", "2: os.unshare"),
        ("zip(a, b, strict=True)\n", "1: strict"),
    ],
)
def test_the_judge_of_python_3_8_notices(source: str, said: str) -> None:
    assert list(too_new(source)) == [said]


def test_the_judge_of_python_3_8_lets_annotations_be() -> None:
    assert (
        list(too_new("from __future__ import annotations\ndef f(a: list[int] | None) -> dict[str, int]: ...\n")) == []
    )

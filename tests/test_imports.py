"""Which package may import which, and the Python 3.8 that nodes may have."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "nodectl"
# what the build writes is a version and no more
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "_version.py")

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"
BASE = "base"
SEPARATE = "separate"
# every package may use these pure parts of what runs on nodes
SHARED_WITH_NODES = {
    "nodectl.payload.common.frames",
    "nodectl.payload.common.host_lock",
    "nodectl.payload.common.machine",
    "nodectl.payload.common.on_event",
    "nodectl.payload.common.secret_words",
    "nodectl.payload.jobs.failures",
    "nodectl.payload.jobs.container",
    "nodectl.payload.jobs.job_id",
    "nodectl.payload.jobs.standing",
}
# imports of the two modules outside the packages
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


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the module and every statement in it; expressions, a dozen times as many, are left out."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for branch in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, branch, ())


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
class Layers:
    """The table of docs/architecture.md: each package's layer, its permitted imports, and the base packages."""

    number: dict[str, int]
    may_import: dict[str, set[str]]
    base: tuple[str, ...]


def read_layers(text: str) -> Layers:
    """Read the block that starts with `layer    package`; a line without a package continues the previous one."""
    block = text.split("layer    package", 1)[1].split("```", 1)[0].splitlines()[1:]
    number: dict[str, int] = {}
    may_import: dict[str, set[str]] = {}
    base: tuple[str, ...] = ()
    layer, package = 0, ""
    for line in block:
        left, words = line[:9].strip(), line[9:].split()
        if left in (BASE, SEPARATE):
            number |= dict.fromkeys(words, -1)
            base = tuple(words) if left == BASE else base
            # a base package may import those listed after it
            may_import |= {word: set(words[words.index(word) + 1 :]) if left == BASE else set() for word in words}
            continue
        layer = int(left) if left else layer
        if not line[9:].startswith(" "):
            package, *words = words
            number[package] = layer
        may_import.setdefault(package, set()).update(word for word in words if word != "-")
    return Layers(number, may_import, base)


LAYERS = read_layers(PICTURE.read_text())


def test_every_package_is_listed() -> None:
    assert set(LAYERS.number) == {part(path) for path in FILES} - {"__init__", "__main__"}


def test_every_package_imports_only_lower_layers() -> None:
    above = {
        (package, used)
        for package, layer in LAYERS.number.items()
        for used in LAYERS.may_import[package]
        if layer >= 0 and LAYERS.number[used] >= layer
    }
    assert not above


def test_packages_import_only_what_the_table_permits() -> None:
    assert {name(path): strays for path in FILES if (strays := unlisted(path))} == {}


def unlisted(path: Path) -> set[str]:
    """The packages that a file imports without permission."""
    home = part(path)
    names = {each for each in imported(path) if each.startswith("nodectl.")}
    used = {each.split(".")[1] for each in names if not each.startswith(tuple(SHARED_WITH_NODES))}
    used -= {"__version__", "_version", home}
    if home in OUTSIDE:
        return used - OUTSIDE[home]
    base = set(LAYERS.base) if LAYERS.number[home] >= 0 else set()
    return used - LAYERS.may_import[home] - base


def test_the_table_permits_no_import_that_is_unused() -> None:
    used: dict[str, set[str]] = {}
    for path in FILES:
        used.setdefault(part(path), set()).update(own_parts(path))
    permitted = {(package, each) for package, others in LAYERS.may_import.items() for each in others}
    # the order of the base packages is a rule, whether or not it is used
    ordered = {(package, each) for package in LAYERS.base for each in LAYERS.may_import[package]}
    assert {(package, each) for package, each in permitted - ordered if each not in used[package]} == set()


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

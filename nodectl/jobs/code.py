"""The operator's code, as it travels to the hosts: the script's project without what is ignored."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from nodectl.common.counting import counted
from nodectl.common.private import (
    MARKS,
    MOUNT,
    NO_PROJECT,
    is_home,
    is_marked,
    is_program,
    is_secret,
    secret_in,
    why_no_project,
)
from nodectl.common.resources import payload_dir
from nodectl.common.spelling import meant
from nodectl.common.units import MIB
from nodectl.errors import UsageError
from nodectl.jobs.plan import CODE_LIMIT_MIB

_LIMIT_FILES = 100_000
_IGNORED_SHOWN = 5
_MANY_FILES = 200
_PARTS_SHOWN = 10
_BUNDLED = "workload:"
_TAKES_BACK = ".nodectlignore"
_IGNORE_FILES = (".gitignore", _TAKES_BACK)  # the later one decides
# what never travels unless .nodectlignore takes it back: history, environments, caches
_NEVER = (
    *(".git", ".hg/", ".svn/", ".venv/", "venv/", "node_modules/"),
    *("__pycache__/", "*.py[co]", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/"),
)
_MOST_STAYED = 300


class _Rules(NamedTuple):
    """Hold the rules of one ignore file, for what lies below `prefix`."""

    prefix: str
    spec: GitIgnoreSpec
    file: str
    lines: Sequence[str] = ()


_NEVER_SPEC = GitIgnoreSpec.from_lines(_NEVER)
_OWN_RULES = _Rules("", _NEVER_SPEC, "nodectl's own rule for environments and caches")
_OF_SECRETS = "nodectl's own rule for secrets and hidden files, which .nodectlignore takes back by its own name"
_OF_GIVEN = "nodectl's own rule for files of --env-file and [[notify]]"
_OF_LINKS = "nodectl's own rule for links out of a project, which .nodectlignore takes back by its own name"
_OF_OTHERS = "nodectl's own rule for what is no file, or another login's file by a hard link"


@dataclass(frozen=True, slots=True)
class Code:
    """Hold what is copied: files with places below `folder`; the script runs in `workdir`, and is named from there.

    `name` is the project's and script's own, for what is kept from one launch to the next; `project` is the folder's.
    `ignored` are places that are told, `secrets` some of them; `stayed` are some of all that stay here, with the file
    whose rule says so. `alone`: why nothing that lies beside it travels. `shown` is to be seen before it goes, and
    `doubtful` to be asked about: nobody said that the folder is a project.
    """

    folder: Path
    script: str
    workdir: str
    name: str
    files: tuple[tuple[Path, str], ...]
    size_bytes: int
    ignored: tuple[str, ...] = ()
    stayed: tuple[tuple[str, str], ...] = ()
    project: str = ""
    secrets: tuple[str, ...] = ()
    alone: str = ""
    shown: tuple[str, ...] = ()
    doubtful: bool = False

    def without(self, given: Iterable[Path]) -> Code:
        """Return the code without these files: they hold secrets that nodectl itself was given."""
        real = {path.resolve() for path in given}
        gone = {place: _OF_GIVEN for path, place in self.files if path.resolve() in real}
        files = tuple(pair for pair in self.files if pair[1] not in gone)
        ignored, secrets = (*gone, *self.ignored), (*gone, *self.secrets)
        return replace(self, files=files, stayed=(*gone.items(), *self.stayed), ignored=ignored, secrets=secrets)

    def left_out(self) -> list[str]:
        """Return a line for each place that stays here and is told, with the rule that says so."""
        return [f"  stays here: {place} ({rule})" for place, rule in self.stayed if place in self.ignored]

    def describe(self) -> str:
        """`code: 12 files, 0.4 MiB of /home/me/project, without 2 secret or hidden places (.env, id_rsa) and data/`."""
        size = f"{counted(len(self.files), 'file')}, {self.size_bytes / MIB:.1f} MiB of {self.folder}"
        if self.alone:
            size = f"{size}, and nothing that lies beside: {self.folder} is {self.alone}, and no project"
        others = [place for place in self.ignored if place not in self.secrets]
        left_out = [_few(others)] if others else []
        if self.secrets:
            left_out.insert(0, f"{counted(len(self.secrets), 'secret or hidden place')} ({_few(self.secrets)})")
        return f"code: {size}{', without ' if left_out else ''}{' and '.join(left_out)}"


def _few(places: Sequence[str]) -> str:
    more = len(places) - _IGNORED_SHOWN
    return ", ".join([*places[:_IGNORED_SHOWN], *([f"{more} more"] if more > 0 else [])])


def left_behind(code: Code, args: Sequence[str]) -> list[str]:
    """Words of the command line that name a file by a relative path, as it is from here, and that no host gets."""
    names = [word.partition("=")[2] or word for word in args]
    here = [(name, (Path.cwd() / name).resolve()) for name in names if name and not name.startswith(("-", "/", "~"))]
    return [name for name, path in here if path.is_file() and not path.is_relative_to(code.folder)]


def find_code(script: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB) -> Code:
    """Collect the code of `script`: all of `folder`, else of the project around it, else of its own folder.

    `workload:NAME` is a training program that nodectl ships. UsageError where there is none, or too much of it.
    """
    bundled = script.startswith(_BUNDLED)
    path = _bundled(script[len(_BUNDLED) :]) if bundled else Path(script).resolve()
    if path.is_dir():
        raise UsageError(
            f"{script} is a folder, not a script", "name a file in it, or go there and start a module: -m MODULE"
        )
    if not path.is_file():
        raise UsageError(
            f"there is no script {script}",
            "give the path of a Python file on this machine; of one that the hosts have: --chdir DIR",
        )
    if bundled:
        return replace(_code(path.parent, path, limit_mib), name=_slug(path.stem))
    root = _root(path, folder)
    if folder is None and (why := _why_alone(root)):
        return _alone(root, path, path, why)
    return _code(root, path, limit_mib, is_named=folder is not None)


def check_module(module: str) -> None:
    """UsageError for what is no module's name."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"-m {module!r} is not the name of a module", "write PACKAGE.MODULE, as for `python -m`")


def find_module(module: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB) -> Code:
    """Collect the code of a Python module that stands where the operator does, or below the `src` of its project."""
    check_module(module)
    here = Path.cwd().resolve()
    project = _named(folder) if folder is not None else _project_of(here)
    for place in dict.fromkeys((here, project, project / "src")):
        stem = place.joinpath(*module.split("."))
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__main__.py"):
            if path.is_file():
                root = _root(path, folder) if folder is not None or not path.is_relative_to(project) else project
                if folder is None and (why := _why_alone(root)):
                    package = place / module.partition(".")[0]
                    code = _alone(root, path, package if package.is_dir() and not _why_alone(package) else path, why)
                else:
                    code = _code(root, path, limit_mib, is_named=folder is not None)
                return replace(code, script=module, name=name_of(module, place))
    raise UsageError(
        f"there is no module {module} in {here}" + (f", {project} or its src" if project != here else " or its src"),
        "go to the folder that holds it; one that the hosts have: --chdir DIR, a folder on them",
    )


def find_folder(argv: Sequence[str], folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB) -> Code:
    """Collect the code of a command: the project around the folder where the operator stands; its words name it."""
    here = Path.cwd().resolve()
    root = _named(folder) if folder is not None else _project_of(here)
    if folder is None and (why := _why_alone(root)):
        raise UsageError(
            f"{root} is {why}, and would be copied whole", "go to the project, or say --code DIR or --chdir DIR"
        )

    def is_own(word: str) -> bool:
        # a program that is given as text (-c) is too long for a name
        return os.path.isfile(here / word) and (here / word).resolve().is_relative_to(root)  # noqa: PTH113

    code = _code(root, None, limit_mib, is_named=folder is not None)
    return replace(code, script=argv[0], name=name_of(program_of(argv, is_own), here))


def program_of(argv: Sequence[str], is_own: Callable[[str], bool]) -> str:
    """Return what `python3 train.py`, `python3 -m pkg.train` or `bash run.sh` starts, rather than what starts it."""
    for before, word in zip(("", *argv), argv, strict=False):
        if before == "-m":
            return word
        if is_own(word):
            return Path(word).with_suffix("").as_posix()
    return Path(argv[0]).stem


def _alone(root: Path, path: Path, package: Path, why: str) -> Code:
    """Collect a script, or a module's package, out of a folder that is no project: what else lies there stays."""
    files: list[tuple[Path, str]] = [(path, path.relative_to(root).as_posix())]
    stayed: dict[str, str] = {}
    if package.is_dir():
        files, stayed = _collect(package, f"{package.name}/")
    beside = dict.fromkeys(_imported_from(root, package, files), f"{root}, {why} {NO_PROJECT}")
    return Code(
        folder=root,
        script=path.name,
        workdir="",
        name=name_of(path.stem, path),
        files=tuple(files),
        size_bytes=_check_size(root, files, CODE_LIMIT_MIB),
        ignored=tuple(sorted(place for place in stayed if _is_told(place))),
        stayed=(*beside.items(), *_first(stayed)),
        secrets=_secrets(stayed),
        project=name_of(package.name, package),
        alone=why,
        shown=(
            *(f"{place} is imported and stays here: put both into a folder of their own" for place in beside),
            *_spoken(files),
        ),
    )


def _imported_from(root: Path, package: Path, files: Sequence[tuple[Path, str]]) -> list[str]:
    """Return what lies in `root` beside the package, and its files import."""
    names: set[str] = set()
    for path, _ in files:
        with suppress(OSError, SyntaxError, ValueError):
            for node in ast.walk(ast.parse(path.read_bytes()) if path.suffix == ".py" else ast.Module([], [])):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    places = (place for name in sorted(names) for place in (f"{name}.py", f"{name}/__init__.py"))
    return [place for place in places if (root / place).is_file() and package not in (root / place, root / place[:-12])]


def _code(root: Path, path: Path | None, limit_mib: int, *, is_named: bool = True) -> Code:
    files, stayed = _collect(root)
    if path is not None and path not in (source for source, _ in files):
        files.append((path, path.relative_to(root).as_posix()))
    size_bytes = _check_size(root, files, limit_mib)
    workdir = _workdir(root, path or root, [place for _, place in files])
    is_project = is_named or is_marked(root)
    shown = _shown(root, files, stayed, is_project=is_project)
    return Code(
        folder=root,
        script="" if path is None else os.path.relpath(path, root / workdir),
        workdir=workdir,
        name="" if path is None else name_of(path.stem, path),
        files=tuple(files),
        size_bytes=size_bytes,
        ignored=tuple(sorted(place for place in stayed if _is_told(place))),
        stayed=_first(stayed),
        project=name_of(root.name, root),
        secrets=_secrets(stayed),
        shown=(*shown, *_spoken(files)),
        doubtful=bool(shown) and not is_project,
    )


def _first(stayed: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """So many of them, secrets first and then folders."""
    secrets = _secrets(stayed)
    ordered = sorted(stayed.items(), key=lambda item: (item[0] not in secrets, not item[0].endswith("/"), item))
    return tuple(ordered[:_MOST_STAYED])


def _secrets(stayed: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(place for place, rule in stayed.items() if rule.startswith(_OF_SECRETS)))


def _shown(
    root: Path, files: Sequence[tuple[Path, str]], stayed: Mapping[str, str], *, is_project: bool
) -> tuple[str, ...]:
    """Return what is to be seen before it goes: many files by the parts they lie in, and projects of others."""
    lines = []
    if len(files) > _MANY_FILES:
        parts = Counter(PurePosixPath(place).parts[0] for _, place in files).most_common()
        more = f" and {len(parts) - _PARTS_SHOWN} more" if len(parts) > _PARTS_SHOWN else ""
        lines.append(f"they lie in {', '.join(f'{part} ({count})' for part, count in parts[:_PARTS_SHOWN])}{more}")
    marked = (PurePosixPath(place) for place in (*stayed, *(place for _, place in files)))
    marks = (".git",) if is_project else MARKS
    others = {str(place.parent) for place in marked if place.name in marks and len(place.parts) > 1}
    owner_uids = {os.getuid(), root.stat().st_uid}
    tops = {PurePosixPath(place).parts[0] for _, place in files if "/" in place}
    others |= {top for top in tops if (root / top).stat().st_uid not in owner_uids}
    if others:
        lines.append(f"other projects, or folders of other people, lie in it: {_few(sorted(others))}")
    return tuple(lines)


def _spoken(files: Sequence[tuple[Path, str]]) -> list[str]:
    """Programs that hold a secret: they travel, for the job is made of them."""
    return [
        f"{place} holds {what}, and travels with it: give it by --env or --env-file instead"
        for path, place in files
        if is_program(path) and (what := secret_in(path))
    ]


def name_of(stem: str, path: str | Path) -> str:
    """Return the name of a program for what is kept from one launch to the next: its stem, and where it lies."""
    return f"{_slug(stem)}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _named(folder: Path) -> Path:
    """Return what --code names; UsageError for what nobody means to copy whole."""
    root = folder.resolve()
    if (why := why_no_project(root)) and why != MOUNT:
        raise UsageError(
            f"--code {folder}: {root} is {why}, and would be copied whole", "name the project's own folder"
        )
    return root


def _root(script: Path, folder: Path | None) -> Path:
    if folder is not None:
        root = _named(folder)
        if not script.is_relative_to(root):
            raise UsageError(f"--code {folder}: the folder does not hold {script}", "name a folder above the script")
        return root
    project = _project_of(script.parent)
    return project if _is_of(project, script) else script.parent


def _why_alone(root: Path) -> str:
    """Return why it is no project; the root of a mount is one where its files say so, as a container is given it."""
    why = why_no_project(root)
    return "" if why == MOUNT and is_marked(root) else why


def _project_of(here: Path) -> Path:
    """Return the nearest folder from here on up that a project's files mark; else this one."""
    for folder in (here, *here.parents):
        if (why := why_no_project(folder)) and why != MOUNT:
            break
        if is_marked(folder):
            return folder
    return here


def _is_of(root: Path, script: Path) -> bool:
    """Tell whether the script belongs to the project: no folder on its path is ignored, as a scratch folder is."""
    specs, folder, place = [_OWN_RULES], root, ""
    for part in script.relative_to(root).parts:
        specs += _specs_of(folder, place)
        folder /= part
        place += part + ("/" if folder.is_dir() else "")
        if _verdict(place, specs)[0]:
            return False
    return True


def _workdir(root: Path, script: Path, places: list[str]) -> str:
    """Return the folder where the operator stands, if it is copied; else the script's folder, or the root ("")."""
    here = Path.cwd().resolve()
    if here == root:
        return ""
    if here.is_relative_to(root):
        place = here.relative_to(root).as_posix()
        if any(copied.startswith(f"{place}/") for copied in places):
            return place
    place = "." if script == root else script.parent.relative_to(root).as_posix()
    return "" if place == "." else place


def _slug(stem: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:50] or "job"


def _bundled(name: str) -> Path:
    folder = payload_dir().parent / "workloads"
    workloads = sorted(
        path.stem
        for path in folder.glob("*.py")
        if path.stem.isidentifier() and '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    )
    if name not in workloads:
        raise UsageError(f"there is no workload {name!r}", f"{meant(name, workloads)}one of: {', '.join(workloads)}")
    return folder / f"{name}.py"


def _is_told(place: str) -> bool:
    """Tell whether an operator wants to hear of a place that stays: nobody does of caches."""
    return not _NEVER_SPEC.match_file(place)


def _collect(root: Path, top: str = "") -> tuple[list[tuple[Path, str]], dict[str, str]]:
    """All files below `root`, those of linked folders too; and the places that stay here, with whose rule says so.

    Places begin with `top`.
    """
    files: list[tuple[Path, str]] = []
    stayed: dict[str, str] = {}
    try:
        for path, place, rule in _walk(root, top, [_OWN_RULES], (root.resolve(),), _taken_back(root)):
            if rule:
                stayed[place] = rule
            elif path.is_file():
                files.append((path, place))
                if len(files) > _LIMIT_FILES:
                    raise UsageError(f"{root} holds more than {_LIMIT_FILES} files", _HOW_TO_LEAVE_OUT)
    except OSError as error:
        raise UsageError(f"the code cannot be read: {error}", _HOW_TO_LEAVE_OUT) from error
    return files, stayed


_HOW_TO_LEAVE_OUT = (
    "name what is not code in .nodectlignore (as in .gitignore), or say --code DIR;"
    " data belongs on the nodes or on a shared file system"
)


def _walk(
    folder: Path,
    place: str,
    specs: list[_Rules],
    above: tuple[Path, ...],
    back: tuple[str, ...],
) -> Iterator[tuple[Path, str, str]]:
    """Each file, and each file or folder that is ignored, with whose rule it is (else empty).

    `above` are the folders that it lies in, the root first: a link to one of them, or out of the root, is left out.
    In an ignored folder lies what is taken, too, where `back` names a place in it.
    """
    specs = [*specs, *_specs_of(folder, place)]
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir()
        at = f"{place}{path.name}" + ("/" if is_folder else "")
        ignored, by = _verdict(at, specs)
        if not ignored:
            rule = _rule_for(path, at, specs, above[0]) or (
                _OWN_RULES.file if ignored is None and _is_environment(path) else ""
            )
            ignored, by = bool(rule), rule
        if ignored or not is_folder:
            yield path, at, by if ignored else ""
        real = Path(os.path.realpath(path))
        if not is_folder or any(entry.is_relative_to(real) for entry in above):
            continue
        if not ignored or any(entry.startswith(at) for entry in back):
            below = _walk(path, at, specs, (*above, real), back)
            yield from (entry for entry in below if not entry[2] or not ignored)


def _rule_for(path: Path, place: str, rules: Sequence[_Rules], root: Path) -> str:
    """Return the rule against copying a file or folder, by its kind, target or content; "" if it may be copied."""
    is_wanted = _is_taken_back(place, rules)
    if path.is_symlink() and (rule := _rule_for_link(path, root, is_wanted=is_wanted)):
        return rule
    try:
        status = path.stat()
    except OSError:  # a dangling link
        return ""
    if path.is_dir():
        return f"{_OF_SECRETS} (it is a home folder)" if not is_wanted and is_home(path) else ""
    is_others = status.st_nlink > 1 and status.st_uid != root.stat().st_uid
    if not path.is_file() or is_others:
        return _OF_OTHERS
    try:
        what = "" if is_program(path) else secret_in(path)
    except OSError as error:  # of a read, which names no file
        raise OSError(error.errno, error.strerror, str(path)) from error
    return f"{_OF_SECRETS} (it holds {what})" if what and not is_wanted else ""


def _rule_for_link(path: Path, root: Path, *, is_wanted: bool) -> str:
    """Return the rule against a link's target, or "".

    A link out of the project is copied only if a rule names it, one to a secret or a home folder never.
    """
    target = os.path.realpath(path)
    above = os.path.commonpath([target, root])
    end = "/" * Path(target).is_dir()
    if target != above and is_secret(os.path.relpath(target, above) + end):
        return _OF_SECRETS
    if above != str(root) and not is_wanted:
        return _OF_LINKS
    return _OF_LINKS if end and why_no_project(Path(target)) not in ("", MOUNT) else ""


def _is_environment(folder: Path) -> bool:
    """Tell whether a folder is a virtual environment, or one of conda, of whichever name."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


def _taken_back(root: Path) -> tuple[str, ...]:
    """Places that the project's .nodectlignore takes back by name (`!data/tiny.bin`), also from folders left out."""
    file = root / ".nodectlignore"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return tuple(line.strip()[1:].lstrip("/") for line in lines if line.startswith("!"))


def _specs_of(folder: Path, place: str) -> Iterator[_Rules]:
    for name in _IGNORE_FILES:
        file = folder / name
        if file.is_file():
            try:
                lines = file.read_text(encoding="utf-8").splitlines()
                yield _Rules(place, GitIgnoreSpec.from_lines(lines), f"{place}{name}", lines)
            except ValueError as error:  # also of text that is none
                raise UsageError(f"{file}: {error}", "correct the file") from error


def _verdict(place: str, rules: Sequence[_Rules]) -> tuple[bool | None, str]:
    """Return whether it is ignored, as the nearest file says that speaks of it; and which that is. Secrets are."""
    ignored, by = _said(place, rules)
    if ignored or not is_secret(place) or _is_taken_back(place, rules):
        return ignored, by
    return True, _OF_SECRETS


def _is_taken_back(place: str, rules: Sequence[_Rules]) -> bool:
    """.nodectlignore takes it back by a line that names it, and secret folders above it, without wildcards."""
    nodectl_rules = [rule for rule in rules if rule.file.endswith(_TAKES_BACK)]
    return _said(place, nodectl_rules)[0] is False and any(
        _names(line.strip()[1:], place[len(rule.prefix) :])
        for rule in nodectl_rules
        for line in rule.lines
        if line[:1] == "!"
    )


def _names(pattern: str, place: str) -> bool:
    parts = PurePosixPath(place).parts
    folders = ["/".join(parts[: depth + 1]) + "/" for depth in range(len(parts) - 1)]
    first = next((depth for depth, folder in enumerate(folders) if is_secret(folder)), len(folders))
    literal = PurePosixPath(re.sub(r"\\(.)", r"\1", pattern)).parts
    return literal[first - len(parts) :] == parts[first:] and GitIgnoreSpec.from_lines([pattern]).match_file(place)


def _said(place: str, rules: Sequence[_Rules]) -> tuple[bool | None, str]:
    for rule in reversed(rules):
        verdict = rule.spec.check_file(place[len(rule.prefix) :]).include
        if verdict is not None:
            return verdict, rule.file
    return None, ""


def _check_size(root: Path, files: list[tuple[Path, str]], limit_mib: int) -> int:
    parts: Counter[str] = Counter()
    for source, place in files:
        parts[PurePosixPath(place).parts[0]] += source.stat().st_size
    size_bytes = parts.total()
    if size_bytes > limit_mib * MIB:
        largest = ", ".join(f"{part} ({size / MIB:.0f} MiB)" for part, size in parts.most_common(3))
        raise UsageError(
            f"{root} holds {size_bytes / MIB:.0f} MiB, more than --code-limit {limit_mib}: {largest}", _HOW_TO_LEAVE_OUT
        )
    return size_bytes

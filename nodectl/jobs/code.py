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

from pathspec import GitIgnoreSpec

from nodectl.common.counting import counted
from nodectl.common.private import (
    MARKS,
    MOUNT,
    NO_PROJECT,
    is_denied,
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
# each speaks for itself: what one of them leaves out, the other does not bring back
_IGNORE_FILES = (".gitignore", ".nodectlignore")
# what travels only if the command line names it: history, environments, caches
_CACHES = GitIgnoreSpec.from_lines(
    (
        *(".git", ".hg/", ".svn/", ".venv/", "venv/", "node_modules/"),
        *("__pycache__/", "*.py[co]", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/"),
    )
)
_MOST_STAYED = 300
_OF_CACHES = "nodectl's own rule for environments and caches"
_OF_SECRETS = "nodectl's own rule for secrets and hidden files"
_OF_GIVEN = "nodectl's own rule for the file of --env-file"
_OF_LINKS = "nodectl's own rule for links out of a project"
_OF_OTHERS = "nodectl's own rule for what is no file, or another login's file by a hard link"


@dataclass(frozen=True, slots=True)
class Code:
    """Hold what is copied: files below `folder` with their places; the script runs in `workdir`, named from there.

    `files` is the one list of what travels; no path in it has a link below `folder`.

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
        size_bytes = sum(path.stat().st_size for path, _ in files)
        ignored, secrets = (*gone, *self.ignored), (*gone, *self.secrets)
        stayed = (*gone.items(), *self.stayed)
        return replace(self, files=files, size_bytes=size_bytes, stayed=stayed, ignored=ignored, secrets=secrets)

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


def find_code(
    script: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB, include: Sequence[Path] = ()
) -> Code:
    """Collect the code of `script`: all of `folder`, else of the project around it, else of its own folder.

    `workload:NAME` is a training program that nodectl ships. `include` are files and folders of it that travel although
    they are ignored. UsageError where there is none, or too much of it, and for a secret that is named.
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
        return replace(_code(path.parent, path, limit_mib, include), name=_slug(path.stem))
    if folder is None:
        _refuse_link_out(Path(script))
    _refuse_keys(path)
    root = _root(path, folder)
    if folder is None and (why := _why_alone(root)):
        return _alone(root, path, path, why, include)
    return _code(root, path, limit_mib, include, is_named=folder is not None)


def check_module(module: str) -> None:
    """UsageError for what is no module's name."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"-m {module!r} is not the name of a module", "write PACKAGE.MODULE, as for `python -m`")


def find_module(
    module: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB, include: Sequence[Path] = ()
) -> Code:
    """Collect the code of a Python module that stands where the operator does, or below the `src` of its project."""
    check_module(module)
    here = Path.cwd().resolve()
    project = _named(folder) if folder is not None else _project_of(here)
    for place in dict.fromkeys((here, project, project / "src")):
        stem = place.joinpath(*module.split("."))
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__main__.py"):
            if path.is_file():
                _refuse_link_out(path)
                root = _root(path, folder) if folder is not None or not path.is_relative_to(project) else project
                if folder is None and (why := _why_alone(root)):
                    package = place / module.partition(".")[0]
                    code = _alone(
                        root, path, package if package.is_dir() and not _why_alone(package) else path, why, include
                    )
                else:
                    code = _code(root, path, limit_mib, include, is_named=folder is not None)
                return replace(code, script=module, name=name_of(module, place))
    raise UsageError(
        f"there is no module {module} in {here}" + (f", {project} or its src" if project != here else " or its src"),
        "go to the folder that holds it; one that the hosts have: --chdir DIR, a folder on them",
    )


def find_folder(
    argv: Sequence[str], folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB, include: Sequence[Path] = ()
) -> Code:
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

    code = _code(root, None, limit_mib, include, is_named=folder is not None)
    return replace(code, script=argv[0], name=name_of(program_of(argv, is_own), here))


def program_of(argv: Sequence[str], is_own: Callable[[str], bool]) -> str:
    """Return what `python3 train.py`, `python3 -m pkg.train` or `bash run.sh` starts, rather than what starts it."""
    for before, word in zip(("", *argv), argv, strict=False):
        if before == "-m":
            return word
        if is_own(word):
            return Path(word).with_suffix("").as_posix()
    return Path(argv[0]).stem


def _alone(root: Path, path: Path, package: Path, why: str, include: Sequence[Path]) -> Code:
    """Collect a script, or a module's package, out of a folder that is no project: what else lies there stays."""
    if include:
        remedy = "put the script and what it needs into a folder of their own, or name that folder: --code DIR"
        raise UsageError(f"--include {include[0]}: {root} is {why}, and no project", remedy)
    files: list[tuple[Path, str]] = [(path.resolve(), path.relative_to(root).as_posix())]
    stayed: dict[str, str] = {}
    if package.is_dir():
        files, stayed = _collect(package, [path], f"{package.name}/")
    elif what := _never(path, place := _place_of(root, path)):
        raise _refusal(place, what)
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


def _code(root: Path, path: Path | None, limit_mib: int, include: Sequence[Path], *, is_named: bool = True) -> Code:
    for named in include:
        if named.is_file() and is_program(named) and (what := secret_in(named)):
            raise _refusal(str(named), f"it holds {what}")
    files, stayed = _collect(root, [*([] if path is None else [path]), *include])
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
    selection = _Selection(root, ())
    ways = [root / place for place in (script.relative_to(root), *script.relative_to(root).parents)]
    return not any(selection.rule_by_name(way) for way in ways if way != root)


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
    return not _CACHES.match_file(place)


def _refuse_link_out(typed: Path) -> None:
    """Raise UsageError if a link on the way to the script leads out of the project in which the link lies."""
    at, parts = Path("/"), typed.absolute().parts[1:]
    for number, part in enumerate(parts, start=1):
        path = at.parent if part == ".." else at / part
        at = Path(os.path.realpath(path))
        if not path.is_symlink() or at.is_relative_to(project := _project_of(path.parent)):
            continue
        # the way to a project may have links of its own
        if not _why_alone(project) and (number == len(parts) or is_marked(project)):
            raise UsageError(f"{typed}: {path} is a link out of {project}", f"name the file itself: {typed.resolve()}")


_HOW_TO_LEAVE_OUT = (
    "name what is not code in .nodectlignore (as in .gitignore), or say --code DIR;"
    " data belongs on the nodes or on a shared file system"
)


def _refuse_keys(script: Path) -> None:
    """Raise UsageError for what is no program in a folder of keys or settings, such as `.ssh/config`."""
    if not is_program(script) and is_denied(f"{script.parent.as_posix()}/"):
        raise UsageError(f"{script} lies in a place of keys or settings: it never travels", "name a program")


def _collect(root: Path, named: Iterable[Path], top: str = "") -> tuple[list[tuple[Path, str]], dict[str, str]]:
    """All files below `root` that travel; and the places that stay here, with whose rule says so.

    Places begin with `top`. `named` are paths of the command line, which no ignore file leaves out.
    """
    selection = _Selection(root, _places_of(root, named))
    try:
        selection.walk(root, top, (root,))
    except OSError as error:
        raise UsageError(f"the code cannot be read: {error}", _HOW_TO_LEAVE_OUT) from error
    return selection.files, selection.stayed


def _places_of(root: Path, named: Iterable[Path]) -> Iterator[str]:
    """Yield where these lie below `root`, and where the links lie by which they are named."""
    for path in named:
        yield _place_of(root, path)
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 - no link is followed
        link = absolute.parent.resolve() / absolute.name
        if root in link.parents:
            yield link.relative_to(root).as_posix()


def _place_of(root: Path, path: Path) -> str:
    real = path.resolve()
    if root not in real.parents:
        raise UsageError(f"{path} leads to {real}, which does not lie in {root}", "name what lies in the project")
    return real.relative_to(root).as_posix()


class _Selection:
    """The files below a folder that travel, and the places that stay here with the rule that says so.

    A file is judged where it really lies, by whatever link it is found. Rules only leave out: `named`, places of the
    command line, are looked for in what is left out, too.
    """

    def __init__(self, root: Path, named: Iterable[str]) -> None:
        self.files: list[tuple[Path, str]] = []
        self.stayed: dict[str, str] = {}
        self._root = root
        self._named = frozenset(named)
        self._specs: dict[Path, GitIgnoreSpec | None] = {}

    def walk(self, folder: Path, shown: str, above: tuple[Path, ...], outer: str = "") -> None:
        """Take what lies in `folder`, which travels as `shown`; of a folder that a rule `outer` leaves out, the named.

        `above` are the folders that it is found in, the root first: no link is followed to one of them.
        """
        for path in sorted(folder.iterdir()):
            real = Path(os.path.realpath(path)) if path.is_symlink() else path
            is_folder = real.is_dir()
            place = f"{shown}{path.name}{'/' * is_folder}"
            if not real.is_relative_to(self._root):
                self.stayed[place] = _OF_LINKS
                continue
            rule = self._rule_by_link(path, real, outer) if path.is_symlink() else self._rule(path, outer)
            if is_folder and (not rule or self._holds_named(real)):
                if not any(entry.is_relative_to(real) for entry in above):
                    self.walk(real, place, (*above, real), rule)
            elif rule:
                if self._place(path) in self._named:
                    raise _refusal(place, rule)
                self.stayed[place] = rule
            elif real.exists():
                self.files.append((real, place))
                if len(self.files) > _LIMIT_FILES:
                    raise UsageError(f"{self._root} holds more than {_LIMIT_FILES} files", _HOW_TO_LEAVE_OUT)

    def _rule_by_link(self, link: Path, real: Path, outer: str) -> str:
        """Return the rule against what a link leads to: its own, and those of all folders in which the target lies."""
        if not real.exists():
            return ""
        rule, ways = "", [way for way in (real, *real.parents) if self._root in way.parents]
        for way in reversed(ways):
            rule = self._rule(way, rule)
        return self._rule(link, outer) or rule

    def _rule(self, path: Path, outer: str = "") -> str:
        """Return the rule against copying a file or folder; "" if it may be copied. UsageError for a named secret."""
        place = self._place(path)
        if self._named_part(place) is not None and (what := _never(path, place)):
            raise _refusal(place, what)
        if rule := self.rule_by_name(path, outer):
            return rule
        if what := _never(path, place):
            return f"{_OF_SECRETS} ({what})"
        if path.is_dir():
            return _OF_CACHES if place not in self._named and _is_environment(path) else ""
        status = path.stat()
        is_others = status.st_nlink > 1 and status.st_uid != self._root.stat().st_uid
        return _OF_OTHERS if is_others or not path.is_file() else ""

    def rule_by_name(self, path: Path, outer: str = "") -> str:
        """Return the rule that leaves a place out by its name, or `outer`, that of its folder; "" for none."""
        own, end = self._place(path), "/" * path.is_dir()
        named = self._named_part(own)
        if named == own:
            return ""
        if named is not None:
            own = own[len(named) + 1 :]
        elif rule := outer or self._ignored_by(path, end):
            return rule
        if _CACHES.match_file(own + end):
            return _OF_CACHES
        return _OF_SECRETS if is_secret(own + end) else ""

    def _place(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _named_part(self, place: str) -> str | None:
        """Return the place of the command line that is this one, or a folder above it."""
        return max((named for named in self._named if f"{place}/".startswith(f"{named}/")), key=len, default=None)

    def _holds_named(self, folder: Path) -> bool:
        return any(folder in (self._root / place).parents for place in self._named)

    def _ignored_by(self, path: Path, end: str) -> str:
        """Return the ignore file that leaves the path out: of each kind the nearest that speaks of it decides."""
        for name in _IGNORE_FILES:
            for folder in path.parents[: len(path.parents) - len(self._root.parents)]:
                spec = self._spec_of(folder / name)
                verdict = spec and spec.check_file(f"{path.relative_to(folder).as_posix()}{end}").include
                if verdict:
                    return self._place(folder / name)
                if verdict is not None:
                    break
        return ""

    def _spec_of(self, file: Path) -> GitIgnoreSpec | None:
        if file not in self._specs:
            try:
                text = file.read_text(encoding="utf-8") if file.is_file() else ""
                self._specs[file] = GitIgnoreSpec.from_lines(text.splitlines()) if text else None
            except ValueError as error:  # also of text that is none
                raise UsageError(f"{file}: {error}", "correct the file") from error
        return self._specs[file]


def _never(path: Path, place: str) -> str:
    """Return why a file or folder never travels, whatever names it (`it holds a private key`); "" if it may."""
    if is_denied(f"{place}{'/' * path.is_dir()}"):
        return "its name is one of keys, passwords or histories"
    if path.is_dir():
        return "it is a home folder" if is_home(path) else ""
    if not path.is_file() or is_program(path):
        return ""
    try:
        what = secret_in(path)
    except OSError as error:  # of a read, which names no file
        raise OSError(error.errno, error.strerror, str(path)) from error
    return f"it holds {what}" if what else ""


def _refusal(place: str, what: str) -> UsageError:
    remedy = "leave it out; variables travel by --env-file, other secrets are put on the hosts without a job"
    return UsageError(f"{place} never travels with a job: {what}", remedy)


def _is_environment(folder: Path) -> bool:
    """Tell whether a folder is a virtual environment, or one of conda, of whichever name."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


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

"""The operator's code, as it travels to the hosts: the script's project without what is ignored."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from nodectl.common.counting import counted
from nodectl.common.resources import payload_dir
from nodectl.common.spelling import meant
from nodectl.common.units import MIB
from nodectl.errors import UsageError
from nodectl.jobs.plan import CODE_LIMIT_MIB

_LIMIT_FILES = 100_000
_IGNORED_SHOWN = 5
_BUNDLED = "workload:"
# any of these in a folder says that it is a project's
_MARKS = (".git", ".nodectlignore", "pyproject.toml", "setup.py", "setup.cfg")
_IGNORE_FILES = (".gitignore", ".nodectlignore")  # the later one decides
# what never travels unless .nodectlignore takes it back: history, environments, caches; secrets (--env-file is theirs)
_NEVER = (
    *(".git", ".hg/", ".svn/", ".venv/", "venv/", "node_modules/"),
    *("__pycache__/", "*.py[co]", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/"),
    *(".env", ".env.*", "!.env.example", "!.env.sample", "!.env.template"),
)
_MOST_STAYED = 300


class _Rules(NamedTuple):
    """Of one ignore file, for what lies below `prefix`."""

    prefix: str
    spec: GitIgnoreSpec
    file: str


_NEVER_SPEC = GitIgnoreSpec.from_lines(_NEVER)
_OWN_RULES = _Rules("", _NEVER_SPEC, "nodectl's own rule for secrets, environments and caches")


@dataclass(frozen=True, slots=True)
class Code:
    """What is copied: files with their places below `folder`; the script runs in `workdir`, and is named from there.

    `name` is the project's and script's own, for what is kept from one launch to the next; `project` is the folder's.
    `ignored` are places that are told, `stayed` some of all that stay here, with the file whose rule says so.
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

    def describe(self) -> str:
        """`code: 12 files, 0.4 MiB of /home/me/project, without .env, data/`."""
        size = f"code: {counted(len(self.files), 'file')}, {self.size_bytes / MIB:.1f} MiB of {self.folder}"
        if not self.ignored:
            return size
        more = len(self.ignored) - _IGNORED_SHOWN
        names = [*self.ignored[:_IGNORED_SHOWN], *([f"{more} more"] if more > 0 else [])]
        return f"{size}, without {', '.join(names)}"


def left_behind(code: Code, args: Sequence[str]) -> list[str]:
    """Words of the command line that name a file by a relative path, as it is from here, and that no host gets."""
    names = [word.partition("=")[2] or word for word in args]
    here = [(name, (Path.cwd() / name).resolve()) for name in names if name and not name.startswith(("-", "/", "~"))]
    return [name for name, path in here if path.is_file() and not path.is_relative_to(code.folder)]


def find_code(script: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB) -> Code:
    """The code of `script`: all of `folder`, else of the project around it, else of its own folder.

    `workload:NAME` is a training program that nodectl ships. UsageError where there is none, or too much of it.
    """
    bundled = script.startswith(_BUNDLED)
    path = _bundled(script[len(_BUNDLED) :]) if bundled else Path(script).resolve()
    if path.is_dir():
        raise UsageError(
            f"{script} is a folder, and no script", "name a file in it, or go there and start a module: -m MODULE"
        )
    if not path.is_file():
        raise UsageError(
            f"there is no script {script}",
            "give the path of a Python file on this machine; of one that the hosts have: --chdir DIR",
        )
    root = path.parent if bundled else _root(path, folder)
    code = _code(root, path, limit_mib)
    return replace(code, name=_slug(path.stem)) if bundled else code


def find_module(module: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB) -> Code:
    """The code of a Python module that stands where the operator does, or below the `src` of its project."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"-m {module!r}: not the name of a module", "say PACKAGE.MODULE, as for `python -m`")
    here = Path.cwd().resolve()
    project = folder.resolve() if folder is not None else _project_of(here)
    for place in dict.fromkeys((here, project, project / "src")):
        stem = place.joinpath(*module.split("."))
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__main__.py"):
            if path.is_file():
                root = _root(path, folder) if folder is not None or not path.is_relative_to(project) else project
                code = _code(root, path.resolve(), limit_mib)
                return replace(code, script=module, name=_name(module, place))
    raise UsageError(
        f"there is no module {module} in {here}" + (f", {project} or its src" if project != here else " or its src"),
        "go to the folder that holds it; one that the hosts have: --chdir DIR, a folder on them",
    )


def find_folder(words: Sequence[str], folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB) -> Code:
    """The code of a command: the project around the folder where the operator stands; its words name the command."""
    here = Path.cwd().resolve()
    root = folder.resolve() if folder is not None else _project_of(here)
    if folder is None and root in (Path.home().resolve(), Path(root.anchor)):
        raise UsageError(
            f"{root} is no project, and would be copied whole", "go to the project, or say --code DIR or --chdir DIR"
        )

    def is_own(word: str) -> bool:
        # a program that is given as text (-c) is too long for a name
        return os.path.isfile(here / word) and (here / word).resolve().is_relative_to(root)  # noqa: PTH113

    return replace(_code(root, None, limit_mib), script=words[0], name=_name(program_of(words, is_own), here))


def program_of(words: Sequence[str], is_own: Callable[[str], bool]) -> str:
    """What `python3 train.py`, `python3 -m pkg.train` or `bash run.sh` starts, rather than what starts it."""
    for before, word in zip(("", *words), words, strict=False):
        if before == "-m":
            return word
        if is_own(word):
            return Path(word).with_suffix("").as_posix()
    return Path(words[0]).stem


def _code(root: Path, path: Path | None, limit_mib: int) -> Code:
    files, stayed = _collect(root)
    if path is not None and path not in (source for source, _ in files):
        files.append((path, path.relative_to(root).as_posix()))
    size_bytes = _check_size(root, files, limit_mib)
    workdir = _workdir(root, path or root, [place for _, place in files])
    return Code(
        folder=root,
        script="" if path is None else os.path.relpath(path, root / workdir),
        workdir=workdir,
        name="" if path is None else _name(path.stem, path),
        files=tuple(files),
        size_bytes=size_bytes,
        ignored=tuple(sorted(place for place in stayed if _is_told(place))),
        stayed=tuple(sorted(stayed.items(), key=lambda item: (not item[0].endswith("/"), item)))[:_MOST_STAYED],
        project=_name(root.name, root),
    )


def _name(stem: str, path: Path) -> str:
    return f"{_slug(stem)}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _root(script: Path, folder: Path | None) -> Path:
    if folder is not None:
        root = folder.resolve()
        if not script.is_relative_to(root):
            raise UsageError(f"--code {folder}: {script} is not in it", "name a folder above the script")
        return root
    project = _project_of(script.parent)
    return project if _is_of(project, script) else script.parent


def _project_of(here: Path) -> Path:
    """The nearest folder from here on up that a project's files mark; else this one."""
    for folder in (here, *here.parents):
        if folder in (Path.home(), Path(folder.anchor)):
            break
        if any((folder / mark).exists() for mark in _MARKS):
            return folder
    return here


def _is_of(root: Path, script: Path) -> bool:
    """Nothing on the way to the script is ignored: a scratch folder in a project is none of it."""
    specs, folder, place = [_OWN_RULES], root, ""
    for part in script.relative_to(root).parts:
        specs += _specs_of(folder, place)
        folder /= part
        place += part + ("/" if folder.is_dir() else "")
        if _verdict(place, specs)[0]:
            return False
    return True


def _workdir(root: Path, script: Path, places: list[str]) -> str:
    """Where the operator stands, if that is a folder of what is copied; else the script's folder (the root's own)."""
    here = Path.cwd().resolve()
    if here == root:
        return ""
    if here.is_relative_to(root):
        place = here.relative_to(root).as_posix()
        if any(each.startswith(f"{place}/") for each in places):
            return place
    place = "." if script == root else script.parent.relative_to(root).as_posix()
    return "" if place == "." else place


def _slug(stem: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:50] or "job"


def _bundled(name: str) -> Path:
    folder = payload_dir().parent / "workloads"
    known = sorted(path.stem for path in folder.glob("*.py") if path.stem.isidentifier() and _is_program(path))
    if name not in known:
        raise UsageError(f"there is no workload {name!r}", f"{meant(name, known)}one of: {', '.join(known)}")
    return folder / f"{name}.py"


def _is_program(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text(encoding="utf-8")


def _is_told(place: str) -> bool:
    """Of caches nobody wants to hear."""
    return PurePosixPath(place).name.startswith(".env") or not _NEVER_SPEC.match_file(place)


def _collect(root: Path) -> tuple[list[tuple[Path, str]], dict[str, str]]:
    """All files below `root`, those of linked folders too; and the places that stay here, with whose rule says so."""
    files: list[tuple[Path, str]] = []
    stayed: dict[str, str] = {}
    try:
        for path, place, rule in _walk(root, "", [_OWN_RULES], (root.resolve(),), _taken_back(root)):
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

    A link to a folder that it lies in is left out.

    In an ignored folder lies what is taken, too, where `back` names a place in it.
    """
    specs = [*specs, *_specs_of(folder, place)]
    for path in sorted(folder.iterdir()):
        is_folder = path.is_dir()
        at = f"{place}{path.name}" + ("/" if is_folder else "")
        ignored, by = _verdict(at, specs)
        if ignored is None and is_folder and _is_environment(path):
            ignored, by = True, _OWN_RULES.file
        if ignored or not is_folder:
            yield path, at, by if ignored else ""
        if is_folder and path.resolve() not in above and (not ignored or any(each.startswith(at) for each in back)):
            below = _walk(path, at, specs, (*above, path.resolve()), back)
            yield from (each for each in below if not each[2] or not ignored)


def _is_environment(folder: Path) -> bool:
    """A virtual environment, or one of conda, of whichever name."""
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
                yield _Rules(place, GitIgnoreSpec.from_lines(lines), f"{place}{name}")
            except ValueError as error:  # also of text that is none
                raise UsageError(f"{file}: {error}", "correct the file") from error


def _verdict(place: str, rules: Sequence[_Rules]) -> tuple[bool | None, str]:
    """Whether it is ignored, as the nearest file says that speaks of it; and which that is."""
    for each in reversed(rules):
        verdict = each.spec.check_file(place[len(each.prefix) :]).include
        if verdict is not None:
            return verdict, each.file
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

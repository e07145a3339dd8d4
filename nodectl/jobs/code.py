"""The operator's code, as it travels to the hosts: what git lists of the script's project, or what --code names."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from pathspec import GitIgnoreSpec

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.private import is_denied, is_program, is_secret, secret_in, why_not_whole
from nodectl.common.resources import payload_dir
from nodectl.common.spelling import meant
from nodectl.common.units import MIB
from nodectl.errors import UsageError
from nodectl.jobs.plan import CODE_LIMIT_MIB

_LIMIT_FILES = 100_000
_GIT_S = 60
_SHOWN = 5
_BUNDLED = "workload:"
# what travels only if the command line names it: history, environments, caches
_CACHES = GitIgnoreSpec.from_lines(
    (
        *(".git", ".hg/", ".svn/", ".venv/", "venv/", "node_modules/"),
        *("__pycache__/", "*.py[co]", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".tox/"),
    )
)
# files at the top of a virtual environment, and of one of conda
_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta/history")
_OF_GIT = "git's ignore rules"
_OF_REPOSITORIES = "a git repository of its own, and no submodule that was checked out: --code or --include names it"
_OF_CACHES = "nodectl's own rule for environments and caches"
_OF_SECRETS = "nodectl's own rule for secrets and hidden files"
_OF_GIVEN = "nodectl's own rule for the file of --env-file"
_OF_LINKS = "nodectl's own rule for links out of a project"
_OF_OTHERS = "nodectl's own rule for what is no file, or another login's file by a hard link"
_HOW_TO_LEAVE_OUT = (
    "name what is not code in .nodectlignore (as in .gitignore), or say --code DIR;"
    " data belongs on the nodes or on a shared file system"
)


@dataclass(frozen=True, slots=True)
class Code:
    """Hold what is copied: files below `folder` with their places; the script runs in `workdir`, named from there.

    `files` is the one list of what travels; no path in it has a link below `folder`. `name` is the project's and
    script's own, for what is kept from one launch to the next. `stayed` are places that stay here, but caches, with the
    rule for each. `alone` is why the script travels without its folder. `shown` is printed before the copy.
    """

    folder: Path
    script: str
    workdir: str
    name: str
    files: tuple[tuple[Path, str], ...]
    size_bytes: int
    stayed: tuple[tuple[str, str], ...] = ()
    alone: str = ""
    shown: tuple[str, ...] = ()

    def without(self, given: Iterable[Path]) -> Code:
        """Return the code without these files: they hold secrets that nodectl itself was given."""
        real = {path.resolve() for path in given}
        gone = {place: _OF_GIVEN for path, place in self.files if path.resolve() in real}
        files = tuple(pair for pair in self.files if pair[1] not in gone)
        size_bytes = sum(path.stat().st_size for path, _ in files)
        return replace(self, files=files, size_bytes=size_bytes, stayed=(*gone.items(), *self.stayed))

    @property
    def secrets(self) -> list[str]:
        """The places that stay here because they are, or may be, secret."""
        return [place for place, rule in self.stayed if rule.startswith((_OF_SECRETS, _OF_GIVEN))]

    def left_out(self) -> list[str]:
        """Return a line for each place that stays here, with the rule that says so."""
        return [f"  stays here: {place} ({rule})" for place, rule in self.stayed]

    def describe(self) -> str:
        """`code: 12 files, 0.4 MiB of /home/me/project, without 2 secret or hidden places (.env, id_rsa) and data/`."""
        size = f"{counted(len(self.files), 'file')}, {self.size_bytes / MIB:.1f} MiB of {self.folder}"
        if self.alone:
            size = f"{size}, and nothing beside: {self.alone}"
        secrets = self.secrets
        others = [place for place, _ in self.stayed[len(secrets) :]]
        left_out = [f"{counted(len(secrets), 'secret or hidden place')} ({few(secrets, _SHOWN)})"] if secrets else []
        left_out += [few(others, _SHOWN)] if others else []
        return f"code: {size}{', without ' if left_out else ''}{' and '.join(left_out)}"


def left_behind(code: Code, args: Sequence[str]) -> list[str]:
    """Return the words of the command line that name a file by a relative path that no host gets."""
    names = [word.partition("=")[2] or word for word in args]
    here = [(name, (Path.cwd() / name).resolve()) for name in names if name and not name.startswith(("-", "/", "~"))]
    travelling = {path for path, _ in code.files} if code.alone else set()
    return [
        name
        for name, path in here
        if path.is_file() and not (path in travelling if code.alone else path.is_relative_to(code.folder))
    ]


def find_code(
    script: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB, include: Sequence[Path] = ()
) -> Code:
    """Collect the code of `script`: all of `folder`, else its git repository, else the script alone.

    `workload:NAME` is a training program that nodectl ships. `include` are files and folders that travel although they
    are ignored. UsageError if there is none, if there is too much of it, and for a secret that is named.
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
    if folder is not None:
        root = _named(folder)
        if not path.is_relative_to(root):
            raise UsageError(f"--code {folder}: the folder does not hold {path}", "name a folder above the script")
        return _code(root, path, limit_mib, include)
    _refuse_link_out(Path(script))
    repository = _repository(path)
    return _alone(path.parent, [path], include) if repository is None else _code(repository, path, limit_mib, include)


def check_module(module: str) -> None:
    """Raise UsageError for what is no module's name."""
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"-m {module!r} is not the name of a module", "write PACKAGE.MODULE, as for `python -m`")


def find_module(
    module: str, folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB, include: Sequence[Path] = ()
) -> Code:
    """Collect the code of a Python module in the current folder, or below the `src` of its project."""
    check_module(module)
    here = Path.cwd().resolve()
    project = _named(folder) if folder is not None else _repository(here) or here
    for place in dict.fromkeys((here, project, project / "src")):
        stem = place.joinpath(*module.split("."))
        for path in (stem.with_name(f"{stem.name}.py"), stem / "__main__.py"):
            if path.is_file():
                code = find_code(str(path), folder, limit_mib=limit_mib, include=include)
                if code.alone and "." in module:
                    raise UsageError(
                        f"-m {module}: only {path.name} would travel: {code.alone}", "name the project: --code DIR"
                    )
                return replace(code, script=module, name=name_of(module, place))
    raise UsageError(
        f"there is no module {module} in {here}" + (f", {project} or its src" if project != here else " or its src"),
        "go to the folder that holds it; one that the hosts have: --chdir DIR, a folder on them",
    )


def find_folder(
    argv: Sequence[str], folder: Path | None = None, *, limit_mib: int = CODE_LIMIT_MIB, include: Sequence[Path] = ()
) -> Code:
    """Collect the code of a command: the git repository of the current folder; its words name the job."""
    here = Path.cwd().resolve()
    root = _named(folder) if folder is not None else _repository(here)

    def is_own(word: str) -> bool:
        # a program that is given as text (-c) is too long for a name
        return os.path.isfile(here / word) and (here / word).resolve().is_relative_to(root or here)  # noqa: PTH113

    if root is None:
        code = _alone(here, [Path(word).resolve() for word in argv if is_own(word)], include)
    else:
        code = _code(root, None, limit_mib, include)
    return replace(code, script=argv[0], name=name_of(program_of(argv, is_own), here))


def program_of(argv: Sequence[str], is_own: Callable[[str], bool]) -> str:
    """Return what `python3 train.py`, `python3 -m pkg.train` or `bash run.sh` starts, rather than what starts it."""
    for before, word in zip(("", *argv), argv, strict=False):
        if before == "-m":
            return word
        if is_own(word):
            return Path(word).with_suffix("").as_posix()
    return Path(argv[0]).stem


def _alone(folder: Path, named: Sequence[Path], include: Sequence[Path]) -> Code:
    """Collect the files that the command line names in a folder that is no project: what lies beside them stays."""
    why = "no git repository holds it; --code DIR copies a folder"
    if include:
        raise UsageError(f"--include {include[0]}: {folder} is not copied", f"{why}: --code {folder}")
    for path in named:
        if what := _never(path, path.name if is_program(path) else path.as_posix()):
            raise _refusal(path.name, what)
    files = tuple((path, path.relative_to(folder).as_posix()) for path in named)
    beside = sorted({place for path in named for place in _imported_from_beside(path)})
    return Code(
        folder=folder,
        script=named[0].name if named else "",
        workdir="",
        name=name_of(named[0].stem, named[0]) if named else "",
        files=files,
        size_bytes=sum(path.stat().st_size for path in named),
        stayed=tuple((place, why) for place in beside),
        alone=why,
        shown=(*(f"{place} is imported and stays here: --code DIR takes both" for place in beside), *_leaks(files)),
    )


def _imported_from_beside(path: Path) -> list[str]:
    names: set[str] = set()
    with suppress(OSError, SyntaxError, ValueError):
        for node in ast.walk(ast.parse(path.read_bytes()) if path.suffix == ".py" else ast.Module([], [])):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    places = (place for name in sorted(names) for place in (f"{name}.py", f"{name}/__init__.py"))
    return [place for place in places if (path.parent / place).is_file()]


def _code(root: Path, path: Path | None, limit_mib: int, include: Sequence[Path]) -> Code:
    for named in include:
        if named.is_file() and is_program(named) and (what := secret_in(named)):
            raise _refusal(str(named), f"it holds {what}")
    try:
        files, stayed = _collect(root, [*([] if path is None else [path]), *include])
    except OSError as error:
        raise UsageError(f"the code cannot be read: {error}", _HOW_TO_LEAVE_OUT) from error
    workdir = _workdir(root, path or root, [place for _, place in files])
    interesting = [item for item in stayed.items() if not _CACHES.match_file(item[0])]
    interesting.sort(key=lambda item: (not item[1].startswith(_OF_SECRETS), not item[0].endswith("/"), item))
    return Code(
        folder=root,
        script="" if path is None else os.path.relpath(path, root / workdir),
        workdir=workdir,
        name="" if path is None else name_of(path.stem, path),
        files=tuple(files),
        size_bytes=_check_size(root, files, limit_mib),
        stayed=tuple(interesting),
        shown=tuple(_leaks(files)),
    )


def _leaks(files: Sequence[tuple[Path, str]]) -> list[str]:
    return [
        f"{place} holds {what}, and travels with it: give it by --env or --env-file instead"
        for path, place in files
        if is_program(path) and (what := secret_in(path))
    ]


def name_of(stem: str, path: str | Path) -> str:
    """Return the name of a program for what is kept from one launch to the next: its stem, and where it lies."""
    return f"{_slug(stem)}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def _named(folder: Path) -> Path:
    """Return what --code names; UsageError for a folder that nobody means to copy whole."""
    root = folder.resolve()
    if why := why_not_whole(root):
        raise UsageError(
            f"--code {folder}: {root} is {why}, and would be copied whole", "name the project's own folder"
        )
    return root


def _repository(path: Path) -> Path | None:
    """Return the git repository in which a script or folder lies, unless git ignores it or it is somebody's home."""
    root = next((folder for folder in (path, *path.parents) if (folder / ".git").exists()), None)
    if root is None or why_not_whole(root):
        return None
    place = path.relative_to(root).as_posix()
    listed = _git(root, "-co", "--exclude-standard", "--", place)
    return None if listed is None or (path.is_file() and place not in listed) else root


def _git(root: Path, *options: str) -> list[str] | None:
    """Return the places that `git ls-files` prints for a repository; None without git, or if it is none.

    The repository's own configuration names neither a program nor another work tree, and nothing is fetched.
    UsageError with git's own words if it lists nothing, as for a repository of another login.
    """
    safe = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--literal-pathspecs"]
    # without --git-dir: git then checks whose repository it is
    argv = ["git", *safe, f"--work-tree={root}", "ls-files", "-z", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # no protocol: git fetches missing objects by programs that the configuration names
    env |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_CEILING_DIRECTORIES": str(root.parent)}
    try:
        done = subprocess.run(
            argv, cwd=root, env={**env, "LC_ALL": "C"}, capture_output=True, check=False, timeout=_GIT_S
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"git does not list the files of {root} in {_GIT_S} s", _HOW_TO_LEAVE_OUT) from error
    if done.returncode == 0:
        return [os.fsdecode(place) for place in done.stdout.split(b"\0") if place]
    words = os.fsdecode(done.stderr).strip()
    if "not a git repository" in words:
        return None
    reason = next((line for line in words.splitlines() if line.startswith("fatal:")), words)
    raise UsageError(
        f"git does not list the files of {root}: {reason.removeprefix('fatal: ')}",
        f"if you trust it, do what `git -C {root} ls-files` says; else copy its files to a folder of your own",
    )


def _workdir(root: Path, script: Path, places: list[str]) -> str:
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


def _refuse_link_out(typed: Path) -> None:
    """Raise UsageError if a link on the way to the script leads out of the repository in which the link lies."""
    at = Path("/")
    for part in typed.absolute().parts[1:]:
        path = at.parent if part == ".." else at / part
        at = Path(os.path.realpath(path))
        if path.is_symlink() and (project := _repository(path.parent)) and not at.is_relative_to(project):
            raise UsageError(f"{typed}: {path} is a link out of {project}", f"name the file itself: {typed.resolve()}")


def _collect(root: Path, named: Iterable[Path]) -> tuple[list[tuple[Path, str]], dict[str, str]]:
    """Return all files below `root` that travel, and the places that stay here with the rule that says so.

    A file is judged by its place and by where it really lies. Rules only leave out; `named` are paths of the command
    line, which no ignore file leaves out.
    """
    taken: dict[str, Path] = {}
    for path in named:
        taken |= _named_files(root, path)
    candidates, stayed = _candidates(root)
    environments = tuple(place[: -len(mark)] for place in candidates for mark in _ENVIRONMENTS if place.endswith(mark))
    for place in _with_linked_folders(root, candidates):
        if place in taken:
            continue
        if rule := _rule(root, place, environments):
            stayed[place] = rule
        elif (root / place).exists():
            taken[place] = Path(os.path.realpath(root / place))
        if len(taken) > _LIMIT_FILES:
            raise UsageError(f"{root} holds more than {_LIMIT_FILES} files", _HOW_TO_LEAVE_OUT)
    travels = {str(folder) for place in taken for folder in PurePosixPath(place).parents}
    gone = {place: rule for place, rule in stayed.items() if place not in taken and place.rstrip("/") not in travels}
    folded = {_topmost_staying(place, travels): rule for place, rule in gone.items()}
    return [(taken[place], place) for place in sorted(taken)], folded


def _candidates(root: Path) -> tuple[list[str], dict[str, str]]:
    """Return the places of all files below `root` but those that ignore files exclude, and these with their rule."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    below = [] if top in (None, root) else ["--", root.relative_to(top).as_posix()]
    places = None if top is None else _git(top, "-co", "--exclude-standard", *below)
    stayed: dict[str, str] = {}
    ignore_files: tuple[str, ...] = (".nodectlignore",)
    if top is not None and places:
        start = 0 if top == root else len(root.relative_to(top).as_posix()) + 1
        ignored = _git(top, "-oi", "--exclude-standard", "--directory", *below) or []
        stayed = {place[start:]: _OF_GIT for place in ignored if place[start:]}
        places = sorted({inner[start:] for place in places for inner in _of_submodule(top, place)})
        stayed |= {place: _OF_REPOSITORIES for place in places if place.endswith("/")}
    else:
        places = list(_below(root))
        ignore_files = (".gitignore", *ignore_files)
    for name in ignore_files:
        spec = _spec(root / name)
        stayed |= {place: name for place in places if spec.match_file(place)}
    return [place for place in places if place not in stayed], stayed


def _of_submodule(top: Path, place: str) -> list[str]:
    folder = top / place
    if place.endswith("/") or folder.is_symlink() or not folder.is_dir():
        return [place]
    inside = _git(folder, "-co", "--exclude-standard") if (folder / ".git").exists() else None
    if inside is None:
        return [f"{place}/"]
    return [f"{place}/{name}" for inner in inside for name in _of_submodule(folder, inner)]


def _below(folder: Path) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        place = os.path.relpath(at, folder)
        prefix = "" if place == "." else f"{place}/"
        linked = [name for name in folders if os.path.islink(os.path.join(at, name))]  # noqa: PTH114, PTH118
        folders[:] = [name for name in folders if name not in linked and not _CACHES.match_file(f"{name}/")]
        yield from (prefix + name for name in sorted([*files, *linked]))


def _with_linked_folders(root: Path, places: Sequence[str]) -> Iterator[str]:
    for place in places:
        path = root / place
        real = Path(os.path.realpath(path)) if path.is_symlink() and path.is_dir() else root
        if real != root and real.is_relative_to(root) and not path.is_relative_to(real):
            inside = f"{real.relative_to(root).as_posix()}/"
            yield from [f"{place}/{one[len(inside) :]}" for one in places if one.startswith(inside)] or [place]
        else:
            yield place


def _spec(file: Path) -> GitIgnoreSpec:
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        return GitIgnoreSpec.from_lines(line for line in text.splitlines())
    except ValueError as error:  # also of text that is none
        raise UsageError(f"{file}: {error}", "correct the file") from error


def _topmost_staying(place: str, travels: set[str]) -> str:
    folders = [str(folder) for folder in reversed(PurePosixPath(place).parents)]
    return next((f"{folder}/" for folder in folders if folder not in travels and folder != "."), place)


def _named_files(root: Path, path: Path) -> dict[str, Path]:
    """Return the files that a path of the command line names; UsageError for a secret, and for what lies elsewhere."""
    real = path.resolve()
    if root not in real.parents:
        raise UsageError(f"{path} leads to {real}, which does not lie in {root}", "name what lies in the project")
    own = real.relative_to(root).as_posix()
    inner = [f"/{place}" for place in _below(real)] if real.is_dir() else [""]
    files: dict[str, Path] = {}
    for place in inner:
        at = Path(os.path.realpath(f"{real}{place}"))
        if what := _never(at, f"{own}{place}"):
            raise _refusal(f"{own}{place}", what)
        if at.is_relative_to(real) and not is_secret(place.lstrip("/")) and not _no_file(root, at):
            files[f"{own}{place}"] = at
        elif not place:
            raise _refusal(own, _OF_OTHERS)
    return files


def _rule(root: Path, place: str, environments: tuple[str, ...]) -> str:
    """Return the rule against copying a file; "" if it may be copied."""
    real = Path(os.path.realpath(root / place))
    if not real.is_relative_to(root):
        return _OF_LINKS
    for name in dict.fromkeys((place, real.relative_to(root).as_posix())):
        if _CACHES.match_file(name) or name.startswith(environments):
            return _OF_CACHES
        if is_secret(name) or is_denied(name):
            return _OF_SECRETS
    if not real.exists():
        return ""
    if _no_file(root, real):
        return _OF_OTHERS
    return f"{_OF_SECRETS} ({what})" if (what := _never(real, place)) else ""


def _no_file(root: Path, path: Path) -> bool:
    status = path.stat()
    return not path.is_file() or (status.st_nlink > 1 and status.st_uid != root.stat().st_uid)


def _never(path: Path, place: str) -> str:
    """Return why a file never travels, whatever names it (`it holds a private key`); "" if it may."""
    if is_denied(place):
        return "its name is one of keys, passwords or histories"
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

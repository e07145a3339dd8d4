"""The operator's own way to start: a script, a module or another engine's words; code copied, or on the hosts."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nodectl.checks.launch.candidate import PathKind
from nodectl.common.system_names import is_image_name
from nodectl.errors import UsageError
from nodectl.jobs.code import Code, check_module, find_code, find_folder, find_module, name_of, program_of
from nodectl.jobs.engines import ACCELERATE, COMMAND, DEEPSPEED, TORCHRUN, of_module, split
from nodectl.jobs.plan import CODE_LIMIT_MIB, NSYS, Container, Start
from nodectl.payload.jobs.container import APPTAINER, Place
from nodectl.payload.jobs.container import argv as container_argv
from nodectl.payload.jobs.container import name as container_name

_PROGRAMS = (".py", ".sh")
_BUNDLED = "workload:"


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold what the command line says of what is to be started, and from where."""

    script: str | None
    args: tuple[str, ...] = ()
    module: str | None = None
    engine: str = TORCHRUN
    chdir: str | None = None
    code_folder: Path | None = None
    code_limit_mib: int = CODE_LIMIT_MIB
    include: tuple[Path, ...] = ()
    container: str | None = None
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """Hold what is started: `code` is None if the hosts have it; `paths` must be there; `name` is the program's."""

    code: Code | None
    script: str
    args: tuple[str, ...]
    start: Start
    name: str
    workdir: str = ""
    paths: tuple[tuple[str, PathKind], ...] = ()


def find_way(asked: Asked, needs: Sequence[str] = ()) -> Way:
    """Return how the job is started; UsageError for options that exclude each other. `needs`: paths of --need."""
    argv, bundled = _with_bundled(asked, _words(asked))
    script, args = (argv[0], argv[1:]) if asked.engine == TORCHRUN else split(asked.engine, argv)
    if asked.trace == NSYS and (asked.engine not in (TORCHRUN, ACCELERATE) or asked.container is not None):
        raise UsageError("--trace nsys is for ranks of torchrun on the hosts themselves", "say --trace torch")
    start = Start(
        engine=asked.engine,
        argv=() if asked.engine == TORCHRUN else argv,
        module=asked.module is not None and asked.engine == TORCHRUN,
        chdir=_absolute("--chdir", asked.chdir),
        container=_container(asked, needs),
        trace=asked.trace,
    )
    if start.chdir:
        return _on_the_hosts(asked, start, script, args)
    code = bundled or _code(asked, script, args)
    shown = code.script if asked.engine == TORCHRUN and asked.module is None else script
    return Way(code, shown, args, start, code.name, code.workdir)


def _words(asked: Asked) -> tuple[str, ...]:
    given = (*(() if asked.script is None else (asked.script,)), *asked.args)
    if asked.module is None:
        if not given:
            raise UsageError("there is nothing to start", "give SCRIPT, -m PACKAGE.MODULE, or --engine command -- ARGV")
        return given
    check_module(asked.module)
    return (asked.module, *given) if asked.engine == TORCHRUN else of_module(asked.engine, asked.module, given)


def _with_bundled(asked: Asked, argv: tuple[str, ...]) -> tuple[tuple[str, ...], Code | None]:
    """Put the file of a program that nodectl ships into the words, with its code; None if none is named."""
    if asked.engine == TORCHRUN:
        return argv, None
    if asked.engine == COMMAND:
        at = next((at for at, word in enumerate(argv) if word.startswith(_BUNDLED)), None)
    else:
        script, args = split(asked.engine, argv)
        at = len(argv) - len(args) - 1 if script.startswith(_BUNDLED) else None
    if at is None:
        return argv, None
    _check_not_on_the_hosts(asked, argv[at])
    code = find_code(argv[at], asked.code_folder, limit_mib=asked.code_limit_mib, include=asked.include)
    before, after = argv[:at], argv[at + 1 :]
    if asked.engine == DEEPSPEED:  # else its launcher adds an option that the program has not
        before = ("--no_local_rank", *before)
    elif asked.engine == COMMAND and not before:
        before = ("python",)
    return (*before, code.script, *after), code


def _check_not_on_the_hosts(asked: Asked, script: str) -> None:
    if asked.chdir is not None and script.startswith(_BUNDLED):
        raise UsageError(f"--chdir: {script} is nodectl's own, and copied to the hosts", "leave --chdir out")


def _container(asked: Asked, needs: Sequence[str]) -> Container | None:
    image = asked.container
    if image is None:
        return None
    if image.startswith("/"):
        return in_container(Container(_absolute("--container", image), APPTAINER), needs)
    if not is_image_name(image):
        raise UsageError(
            f"--container {image!r}: not the name of an image",
            "write REGISTRY/NAME:TAG, NAME in lower case, or for apptainer /a/file.sif",
        )
    return in_container(Container(image), needs)


def in_container(container: Container, paths: Sequence[str]) -> Container:
    """Return the container with these paths of the hosts in it."""
    wrong = next((path for path in paths if "," in path or ":" in path), None)
    if wrong is not None:
        raise UsageError(f"{wrong}: a path with ',' or ':' cannot be given into a container", "use one without")
    return replace(container, paths=tuple(dict.fromkeys(paths)))


def _absolute(option: str, path: str | None) -> str:
    if path is None:
        return ""
    if not path.startswith("/") or "\0" in path:
        raise UsageError(f"{option} {path}: not an absolute path on the hosts", "say /a/folder/on/the/hosts")
    return posixpath.normpath(path)


def needed(paths: Sequence[str]) -> tuple[tuple[str, PathKind], ...]:
    """Return the paths of --need."""
    return tuple((_absolute("--need", path), "any") for path in dict.fromkeys(paths))


def _code(asked: Asked, script: str, args: Sequence[str]) -> Code:
    folder, limit_mib, include = asked.code_folder, asked.code_limit_mib, asked.include
    if asked.module is not None:
        return find_module(asked.module, folder, limit_mib=limit_mib, include=include)
    if asked.engine == TORCHRUN:
        return find_code(script, folder, limit_mib=limit_mib, include=include)
    return find_folder((script, *args), folder, limit_mib=limit_mib, include=include)


def _on_the_hosts(asked: Asked, start: Start, script: str, args: tuple[str, ...]) -> Way:
    for option, given in (("--code", asked.code_folder is not None), ("--include", asked.include)):
        if given:
            reason = f"{option} and --chdir exclude each other: with --chdir nothing is copied"
            raise UsageError(reason, "say one of them")
    _check_not_on_the_hosts(asked, script)
    paths: list[tuple[str, PathKind]] = [(start.chdir, "folder")]
    if asked.module is None and asked.engine != COMMAND:
        paths.append((posixpath.join(start.chdir, script), "file"))
    # of a command, what it starts: two scripts that one Python runs have checkpoints of their own
    program = script if asked.engine != COMMAND else program_of((script, *args), lambda word: word.endswith(_PROGRAMS))
    stem = posixpath.splitext(posixpath.basename(program))[0]
    return Way(None, script, args, start, name_of(stem, posixpath.join(start.chdir, program)), "", tuple(paths))


def container_line(plan: Mapping[str, Any]) -> str:
    """Return the command line on the first host, with nodectl's folder at its default place; "" without a container."""
    asked, state = plan["start"]["container"], "~/.local/state/nodectl"
    if asked is None:
        return ""
    job, checkpoint = f"{state}/jobs/{plan['id']}", (plan["checkpoint"] or {}).get("dir", "")
    root = plan["start"]["chdir"] or f"{job}/code"
    place = Place(
        job=job,
        cwd=f"{root}/{plan['workdir']}".rstrip("/"),
        folders=[plan["start"]["chdir"], checkpoint if checkpoint.startswith("/") else "", *asked["paths"]],
        programs=[f"{state}/payload", plan["launcher"]],
        rdma=False,
        uid=0,
        gid=0,
    )
    argv = [plan["launcher"], "…"]
    return shlex.join(container_argv(asked, container_name(plan["id"], 0), place, plan["env_names"], argv))

"""The launcher's environment at work: torch and DeepSpeed as they import, the launcher, nccl-tests' programs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.common import bounded_json, node_paths
from nodectl.common.counting import counted
from nodectl.common.resources import payload_dir
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry, output, shell, variable
from nodectl.facts.versions import venv_of
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

_DEADLINE_S = 180


@dataclass(frozen=True, slots=True)
class Imported:
    """A package as it was imported; `error` is why it could not be, and then there is no version.

    `libraries` are versions by name (cuda, cudnn, nccl), `files` where they were loaded from; `own` are the folders of
    the environment's packages, `shadowing` those of LD_LIBRARY_PATH that hold libraries which torch brings itself;
    `distributions` is all that is installed beside it, {canonical name: version}, `python` the interpreter.
    """

    version: str | None
    error: str
    libraries: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    shadowing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    distributions: Mapping[str, str] = field(default_factory=dict)
    python: str = ""


def import_command(name: str, host: Host) -> Command:
    """Return the command that imports the package in the launcher's environment."""
    text = (payload_dir() / "facts" / "torch_import.py").read_text(encoding="utf-8")
    return Command(f"{name}-import", (f"{venv_of(host)}/bin/python", "-c", text, name), deadline_s=_DEADLINE_S)


def read_import(recording: Recording, name: str) -> Imported:
    """Return the answer among what the package prints; a process that died tells by its last line."""
    done = entry(recording, f"{name}-import")
    match = re.search(r"^NODECTL (.+)$", done.stdout, re.MULTILINE)
    if match is None:
        lines = done.stderr.strip().splitlines()
        return Imported(None, lines[-1] if lines else f"ended with {done.exit_status}")
    try:
        answer: dict[str, Any] = bounded_json.loads(match[1])
        libraries = {library: str(answer[library]) for library in ("cuda", "cudnn", "nccl") if answer.get(library)}
        files = {name: str(answer[f"{name}_path"]) for name in ("cudnn", "nccl") if answer.get(f"{name}_path")}
        shadowing = {folder: tuple(names) for folder, names in answer["shadowing"].items()}
        own_folders, distributions = tuple(answer["own"]), dict(answer["distributions"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"{name}-import: {match[1][:200]!r}") from error
    reason, python = str(answer.get("error", "")), str(answer.get("python", ""))
    return Imported(answer.get("version"), reason, libraries, files, own_folders, shadowing, distributions, python)


TORCH_IMPORT_FACT = Fact(
    "torch_import",
    lambda host: (import_command("torch", host),),
    lambda recording: read_import(recording, "torch"),
    lambda value: value.error or f"torch {value.version}",
    row=505,
    occasion="verify",
    about="What PyTorch is when a job imports it: versions and files of the libraries that it really loads.",
)


DEEPSPEED_FACT = Fact(
    "deepspeed",
    lambda host: (import_command("deepspeed", host),),
    lambda recording: read_import(recording, "deepspeed"),
    lambda value: value.error or f"deepspeed {value.version}",
    row=506,
    occasion="verify",
    about="What DeepSpeed is when a job imports it.",
)


# it reads NCCL's files and prints what a job would get
_LAUNCHER_SHOW = f"""\
[ -d {node_paths.ROOT} ] || exit 3
if [ -x "$1" ]; then
  said=$("$1" --print-env 2>&1 >/dev/null)
  printf 'launcher %s %s\\n' "$?" "$(printf '%s' "$said" | tail -n 1)"
else
  echo 'launcher 127 no such program, or not executable'
fi
[ -x "$2" ] && echo 'torchrun 0 executable' || echo 'torchrun 127 not there, or not executable'
"""


@dataclass(frozen=True, slots=True)
class Launcher:
    """The launcher that nodectl deployed: why it does not run, and why torchrun cannot be started; empty if they do."""

    error: str
    torchrun_error: str


def _read_launcher(recording: Recording) -> Launcher:
    text = output(recording, "launcher", f"no {node_paths.ROOT} there")
    answers = {}
    for line in text.splitlines():
        name, status, message = (line + "  ").split(" ", 2)
        reason = message.strip() if status == "127" else f"exit status {status}: {message.strip()}"
        answers[name] = "" if status == "0" else reason
    return Launcher(answers["launcher"], answers["torchrun"])


LAUNCHER_FACT = Fact(
    "launcher",
    lambda host: (
        Command("launcher", ("sh", "-c", _LAUNCHER_SHOW, "sh", node_paths.LAUNCHER, f"{venv_of(host)}/bin/torchrun")),
    ),
    _read_launcher,
    lambda launcher: launcher.error or launcher.torchrun_error or "runs",
    row=507,
    occasion="live",
)


@dataclass(frozen=True, slots=True)
class NcclTestsBuild:
    """One build: its `note`, the libnccl that it loads, and how a run ended; None without a GPU to run on."""

    program: str
    note: Mapping[str, str]
    library: str
    run_error: str | None = None


@dataclass(frozen=True, slots=True)
class NcclTests:
    """The programs of nccl-tests: from what they were built, which NCCL they load, and whether they run.

    `cuda` are the releases of nvcc, `headers` the NCCL that a build would take, `own_library` the environment's.
    """

    cuda: frozenset[str]
    headers: str
    own_library: str
    builds: tuple[NcclTestsBuild, ...]


def _commands(host: Host) -> tuple[Command, ...]:
    cuda = variable(host, "nccl_tests_cuda_home", "/usr/local/cuda")
    argv = ("sh", "-c", shell("nccl-tests"), "sh", node_paths.NCCL_TESTS, venv_of(host), cuda)
    return (Command("nccl-tests", argv, deadline_s=60),)


def _read_nccl_tests(recording: Recording) -> NcclTests:
    single: dict[str, str] = {}
    builds: list[dict[str, str]] = []
    cuda: set[str] = set()
    for line in output(recording, "nccl-tests").splitlines():
        name, _, text = line.partition(" ")
        if name == "cuda" and text:
            cuda.add(text)
        if name == "program":
            builds.append({})
        (builds[-1] if builds else single)[name] = text.strip()
    headers, own_library = single.get("headers", ""), single.get("own", "")
    return NcclTests(frozenset(cuda), headers, own_library, tuple(map(_build, builds)))


def _build(lines: Mapping[str, str]) -> NcclTestsBuild:
    try:
        note = {str(key): str(value) for key, value in bounded_json.loads(lines["note"]).items()}
    except (ValueError, KeyError, AttributeError) as error:
        raise ParseError(f"nccl-tests: {lines}") from error
    run_error = _run_error(*lines["run"].partition(" ")[::2]) if "run" in lines else None
    return NcclTestsBuild(lines["program"], note, lines.get("library", ""), run_error)


def _run_error(status: str, text: str) -> str:
    wrong = re.search(r"Out of bounds values\s*:\s*(\d+)", text)
    versions = set(re.findall(r"nccl-(?:headers|library)=\s*(\d+)", text))
    if status != "0":
        return f"ended with {status}: {text[-200:].strip()}"
    if wrong and wrong[1] != "0":
        return counted(int(wrong[1]), "wrong value")
    return "headers and library are of two versions" if len(versions) > 1 else ""


NCCL_TESTS_FACT = Fact(
    "nccl_tests",
    _commands,
    _read_nccl_tests,
    lambda tests: ", ".join(build.program for build in tests.builds) or "not built",
    row=509,
    occasion="verify",
)

"""Versions of what a job would load: environment, driver, libraries of the system, container toolkit."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from nodectl.common import node_paths
from nodectl.errors import ParseError
from nodectl.facts.base import (
    AbsentError,
    Fact,
    UnknownError,
    entry,
    listed,
    matches,
    output,
    script,
    shell,
    text_fact,
    variable,
)
from nodectl.facts.gpus import GPUS_COMMANDS, GPUS_FACT
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

# NCCL answers without a GPU and without CUDA's runtime, which is linked into it
_LOAD = """\
import ctypes, sys
number = ctypes.c_int()
if ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number)) == 0:
    major = 10000 if number.value >= 10000 else 1000
    print("nccl_loaded %d.%d.%d" % (number.value // major, number.value % major // 100, number.value % 100))
"""


_WHEELS = (("nvidia_nccl", "nccl"), ("nvidia_cudnn", "cudnn"), ("nvidia_cuda_runtime", "cuda"))


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions as a job would load them: from the venv's files and the loaded driver, never by importing torch.

    Why one is None stands in `unavailable`.

    `torch`, `cuda`, `cudnn` and `nccl` are those of the launcher's `venv`, read from its files; `nccl_loaded` is what
    the library there answers when it is loaded. `driver` is the loaded module, `driver_installed` the one on disk,
    `driver_library` the one that programs talk through; `driver_cuda` is the newest CUDA that the driver takes.
    """

    venv: str
    python3: str | None = None
    venv_python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    iperf3: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    cudnn: str | None = None
    nccl_loaded: str | None = None
    deepspeed: str | None = None
    driver_installed: str | None = None
    driver_library: str | None = None
    driver_flavour: str | None = None


def venv_of(host: Host) -> str:
    """Return where the launcher's Python environment lies on `host`."""
    return variable(host, "pytorch_venv", node_paths.VENV)


def _commands(host: Host) -> tuple[Command, ...]:
    return (
        Command("python3", ("python3", "--version")),
        Command("venv", ("sh", "-c", shell("venv"), "venv", venv_of(host), _LOAD), deadline_s=20, hardware=True),
        Command("nvidia-smi-version", ("nvidia-smi", "--version"), deadline_s=20, hardware=True),
        Command("proc-driver-nvidia", ("cat", "/proc/driver/nvidia/version"), hardware=True),
        script("driver-installed", hardware=True),
        Command("iperf3-version", ("iperf3", "--version")),
        *GPUS_COMMANDS,
    )


def _read_versions(recording: Recording) -> Versions:
    venv, wheels, reason = _venv(recording)
    unavailable: dict[str, str] = {}

    def version(name: str, read: Callable[[], str | None], why: str) -> str | None:
        """One version; if there is none, why."""
        try:
            value, reason = read(), why
        except (AbsentError, UnknownError, ParseError) as error:
            value, reason = None, str(error)
        if value is None:
            unavailable[name] = reason
        return value

    def driver_cuda() -> str | None:
        # an older nvidia-smi does not know --version: its report has it
        return _smi(recording, "CUDA") or GPUS_FACT.read(recording).cuda_version

    no_venv = reason or f"no venv in {venv}"
    missing = no_venv if "python" not in wheels else "no such wheel in the venv"
    no_cuda = "torch is built without CUDA" if "torch" in wheels else missing
    of_wheels = dict.fromkeys(("torch", "cudnn", "nccl", "deepspeed"), missing)
    of_wheels |= {"cuda": no_cuda, "nccl_loaded": "no library of NCCL there could be loaded"}
    return Versions(
        venv=venv,
        python3=version("python3", lambda: _after(output(recording, "python3"), r"Python (\S+)"), "not printed"),
        venv_python=version("venv_python", lambda: wheels.get("python"), no_venv),
        **{name: version(name, partial(wheels.get, name), why) for name, why in of_wheels.items()},
        driver=version("driver", lambda: _driver(recording), "no NVIDIA driver is loaded"),
        driver_installed=version(
            "driver_installed", lambda: _after(output(recording, "driver-installed"), r"(\S+)"), "not printed"
        ),
        driver_library=version("driver_library", partial(_smi, recording, "NVML"), "not printed by this nvidia-smi"),
        driver_flavour=version("driver_flavour", lambda: _flavour(recording), "no NVIDIA driver is loaded"),
        driver_cuda=version("driver_cuda", driver_cuda, "not printed by this nvidia-smi"),
        iperf3=version("iperf3", lambda: _after(output(recording, "iperf3-version"), r"iperf (\S+)"), "not printed"),
        unavailable=unavailable,
    )


def _venv(recording: Recording) -> tuple[str, dict[str, str], str]:
    values: dict[str, str] = {}
    try:
        text = output(recording, "venv")
    except (AbsentError, UnknownError) as error:
        if not any(command.key in recording.entries for command in _commands(Host("", ""))):
            raise
        return "", {}, str(error)
    for line in text.splitlines():
        kind, _, value = line.partition(" ")
        if kind == "wheel":
            name, _, version = value.rpartition("-")
            values[next((short for wheel, short in _WHEELS if name.startswith(wheel)), name)] = version
        elif value and value != "None":
            values.setdefault(kind, value)
    return values.pop("venv", ""), values, ""


def _after(text: str, pattern: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def _driver(recording: Recording) -> str | None:
    try:
        loaded = entry(recording, "proc-driver-nvidia")
    except UnknownError:
        loaded = None
    if loaded is not None and loaded.exit_status == 0:
        return _after(loaded.stdout, r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)\s")
    return GPUS_FACT.read(recording).driver_version


def _flavour(recording: Recording) -> str | None:
    loaded = entry(recording, "proc-driver-nvidia")
    if loaded.exit_status != 0 or "Kernel Module" not in loaded.stdout:
        return None
    return "open" if "Open Kernel Module" in loaded.stdout else "proprietary"


def _smi(recording: Recording, component: str) -> str | None:
    """Return a line of `nvidia-smi --version`, whose wording changed with the drivers."""
    text = entry(recording, "nvidia-smi-version").stdout
    return _after(text, rf"{component}\s+[Vv]ersion\s*:\s*(\d[\d.]*)")


def _versions_words(versions: Versions) -> str:
    shown = {
        "python": versions.python3,
        "torch": versions.torch,
        "cuda": versions.cuda,
        "nccl": versions.nccl,
        "driver": versions.driver,
        "iperf3": versions.iperf3,
    }
    return ", ".join(f"{name} {version or '-'}" for name, version in shown.items())


VERSIONS_FACT = Fact("versions", _commands, _read_versions, _versions_words, row=500)


# as sed writes alternatives
_NAMES = r"\|".join(
    rf"lib{name}\.so" for name in ("nccl", "nccl-net", "cudnn", "cudart", "cuda", "nvidia-ml", "ibverbs")
)
# PATH, where its link leads to: the file's name carries the version
_LIBRARIES_SHOW = f"""\
set -f
IFS='
'
set -- $(ldconfig -p | sed -n 's/^[[:space:]]*\\({_NAMES}\\).* (libc6,.*=> //p')
[ $# -gt 0 ] || exit 0
if reals=$(realpath "$@" 2>/dev/null); then # one process for all of them
  for real in $reals; do printf '%s\\t%s\\n' "$1" "$real"; shift; done
else
  for path; do printf '%s\\t%s\\n' "$path" "$(readlink -f "$path")"; done
fi
"""
_LINE = re.compile(r"(?P<path>(?:[^\t]*/)?(?P<name>[^\t/]*))\t(?P<real>.*)")
_LIBRARIES_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


@dataclass(frozen=True, slots=True)
class Library:
    """A library that the dynamic linker would load, with the version that its file's name carries."""

    name: str
    path: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Libraries:
    """NVIDIA's libraries of the system: what a program finds that brings none of its own."""

    libraries: tuple[Library, ...]


def _parse_libraries(text: str) -> Libraries:
    libraries = []
    for match in matches(_LINE, text, "loaded-libraries"):
        version = _LIBRARIES_VERSION.search(match["real"])
        libraries.append(Library(match["name"], match["path"], version[1] if version else None))
    return Libraries(tuple(libraries))


LIBRARIES_FACT = text_fact(
    "libraries",
    script("loaded-libraries", _LIBRARIES_SHOW, hardware=True),
    _parse_libraries,
    lambda value: listed({f"{library.name} {library.version or ''}".strip() for library in value.libraries}),
    row=510,
)


_CONTAINERS_SHOW = """\
command -v nvidia-ctk >/dev/null 2>&1 && exec nvidia-ctk --version
command -v nvidia-container-cli >/dev/null 2>&1 || exit 3
exec nvidia-container-cli --version
"""
_CONTAINERS_VERSION = re.compile(r"(?:version |cli-version: )v?(\d+(?:\.\d+){1,3})")


@dataclass(frozen=True, slots=True)
class ContainerToolkit:
    """NVIDIA's container toolkit: what brings the GPUs into containers."""

    version: str


def _parse_containers(text: str) -> ContainerToolkit:
    match = _CONTAINERS_VERSION.search(text)
    if match is None:
        raise ParseError(f"container-toolkit: {text[:120]!r} names no version")
    return ContainerToolkit(match[1])


CONTAINERS_FACT = text_fact(
    "containers",
    script("container-toolkit", _CONTAINERS_SHOW, hardware=True),
    _parse_containers,
    lambda toolkit: toolkit.version,
    absent="NVIDIA's container toolkit is not installed",
    row=525,
)


# a container image may lack getconf's value (musl), and a minimal one /etc/localtime
_USERLAND_SHOW = """\
printf 'glibc %s\\n' "$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')"
printf 'zone %s\\n' "$(readlink -f /etc/localtime 2>/dev/null | sed -n 's|.*/zoneinfo/||p')"
printf 'offset %s\\n' "$(date +%z)"
"""
_USERLAND_COMMAND = script("userland", _USERLAND_SHOW, hardware=True)
_LINES = re.compile(r"glibc (?P<glibc>[\d.]*)\nzone (?P<zone>\S*)\noffset (?P<offset>[+-]\d{4})\n?")


@dataclass(frozen=True, slots=True)
class Userland:
    """The C library, None if it is not glibc, and the time zone: a name of the tz database, else the offset."""

    glibc: str | None
    time_zone: str


def _parse_userland(text: str) -> Userland:
    match = _LINES.fullmatch(text)
    if match is None:
        raise ParseError(f"userland: {text[:200]!r} does not name the C library and the time zone")
    # the posix and right trees hold the same zones, and some images link Etc/UTC, others UTC
    zone = re.sub(r"^(posix/|right/|Etc/)", "", match["zone"])
    return Userland(match["glibc"] or None, zone or f"UTC{match['offset']}".replace("UTC+0000", "UTC"))


def _userland_words(userland: Userland) -> str:
    return f"glibc {userland.glibc or 'not there'}, time zone {userland.time_zone}"


USERLAND_FACT = text_fact("userland", _USERLAND_COMMAND, _parse_userland, _userland_words, row=305)

"""Versions as a job would load them: from the venv's files and the loaded driver, never by importing torch."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nodectl.common import node_paths
from nodectl.errors import ParseError
from nodectl.facts import gpus
from nodectl.facts.base import AbsentError, Fact, UnknownError, entry, output, variable
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording

# NAME VERSION a line, of the wheels that decide what a job loads; then torch's own word on its build
_VENV = """\
printf 'venv %s\\n' "$1"
[ -d "$1" ] || exit 0
printf 'python %s\\n' "$(sed -n 's/^version\\(_info\\)\\{0,1\\} *= *//p' "$1/pyvenv.cfg" | head -n 1)"
for folder in "$1"/lib/python3*/site-packages/*.dist-info; do
  name=${folder##*/}; name=${name%.dist-info}
  case $name in
    torch-* | deepspeed-* | nvidia_nccl_* | nvidia_cudnn_* | nvidia_cuda_runtime*) printf 'wheel %s\\n' "$name" ;;
  esac
done
for library in "$1"/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2; do
  [ ! -e "$library" ] || "$1/bin/python" -I -S -c "$2" "$library" 2>/dev/null
done
sed -n "s/^cuda.*= *'\\(.*\\)'.*/cuda \\1/p; s/^cuda.*= *None.*/cuda None/p" \\
  "$1"/lib/python3*/site-packages/torch/version.py 2>/dev/null
exit 0
"""
# NCCL answers without a GPU and without CUDA's runtime, which is linked into it
_LOAD = """\
import ctypes, sys
number = ctypes.c_int()
if ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number)) == 0:
    major = 10000 if number.value >= 10000 else 1000
    print("nccl_loaded %d.%d.%d" % (number.value // major, number.value % major // 100, number.value % 100))
"""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions as a job would load them; why one is None stands in `unavailable`.

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
        Command("venv", ("sh", "-c", _VENV, "venv", venv_of(host), _LOAD), deadline_s=20, hardware=True),
        Command("nvidia-smi-version", ("nvidia-smi", "--version"), deadline_s=20, hardware=True),
        Command("proc-driver-nvidia", ("cat", "/proc/driver/nvidia/version"), hardware=True),
        Command("driver-installed", ("modinfo", "-F", "version", "nvidia"), hardware=True),
        Command("iperf3-version", ("iperf3", "--version")),
        *gpus.COMMANDS,
    )


def _read(recording: Recording) -> Versions:
    venv, wheels, reason = _venv(recording)
    unavailable: dict[str, str] = {}

    def version(name: str, read: Callable[[], str | None], why: str) -> str | None:
        """One version; where there is none, why."""
        try:
            value, reason = read(), why
        except (AbsentError, UnknownError, ParseError) as error:
            value, reason = None, str(error)
        if value is None:
            unavailable[name] = reason
        return value

    no_venv = reason or f"no venv in {venv}"
    missing = no_venv if "python" not in wheels else "no such wheel in the venv"
    no_cuda = "torch is built without CUDA" if "torch" in wheels else missing
    not_loaded = "no library of NCCL there could be loaded"
    return Versions(
        venv=venv,
        python3=version("python3", lambda: _after(output(recording, "python3"), r"Python (\S+)"), "not printed"),
        venv_python=version("venv_python", lambda: wheels.get("python"), no_venv),
        torch=version("torch", lambda: wheels.get("torch"), missing),
        cuda=version("cuda", lambda: wheels.get("cuda"), no_cuda),
        cudnn=version("cudnn", lambda: wheels.get("cudnn"), missing),
        nccl=version("nccl", lambda: wheels.get("nccl"), missing),
        nccl_loaded=version("nccl_loaded", lambda: wheels.get("nccl_loaded"), not_loaded),
        deepspeed=version("deepspeed", lambda: wheels.get("deepspeed"), missing),
        driver=version("driver", lambda: _driver(recording), "no NVIDIA driver is loaded"),
        driver_installed=version("driver_installed", lambda: _first_line(recording, "driver-installed"), "not printed"),
        driver_library=version("driver_library", lambda: _smi(recording, "NVML"), "not printed by this nvidia-smi"),
        driver_flavour=version("driver_flavour", lambda: _flavour(recording), "no NVIDIA driver is loaded"),
        driver_cuda=version("driver_cuda", lambda: _driver_cuda(recording), "not printed by this nvidia-smi"),
        iperf3=version("iperf3", lambda: _after(output(recording, "iperf3-version"), r"iperf (\S+)"), "not printed"),
        unavailable=unavailable,
    )


def _venv(recording: Recording) -> tuple[str, dict[str, str], str]:
    """The venv's folder, versions by name, and why there are none where it could not be looked into."""
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
            values[_wheel(name)] = version
        elif value and value != "None":
            values.setdefault(kind, value)
    return values.pop("venv", ""), values, ""


def _wheel(name: str) -> str:
    for wheel, short in (("nvidia_nccl", "nccl"), ("nvidia_cudnn", "cudnn"), ("nvidia_cuda_runtime", "cuda")):
        if name.startswith(wheel):
            return short
    return name


def _after(text: str, pattern: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def _driver(recording: Recording) -> str | None:
    """The loaded module's version, from the kernel; else what nvidia-smi was told by it."""
    try:
        loaded = entry(recording, "proc-driver-nvidia")
    except UnknownError:
        loaded = None
    if loaded is not None and loaded.exit_status == 0:
        return _after(loaded.stdout, r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)\s")
    return gpus.FACT.read(recording).driver_version


def _flavour(recording: Recording) -> str | None:
    """The open kernel module, or the proprietary one."""
    loaded = entry(recording, "proc-driver-nvidia")
    if loaded.exit_status != 0 or "Kernel Module" not in loaded.stdout:
        return None
    return "open" if "Open Kernel Module" in loaded.stdout else "proprietary"


def _first_line(recording: Recording, key: str) -> str | None:
    return next((line.strip() for line in output(recording, key).splitlines() if line.strip()), None)


def _smi(recording: Recording, component: str) -> str | None:
    """A line of `nvidia-smi --version`, whose wording changed with the drivers."""
    text = entry(recording, "nvidia-smi-version").stdout
    return _after(text, rf"{component}\s+[Vv]ersion\s*:\s*(\d[\d.]*)")


def _driver_cuda(recording: Recording) -> str | None:
    """Return it as `nvidia-smi --version` says; older ones do not know the option, and their report has it."""
    version = _after(entry(recording, "nvidia-smi-version").stdout, r"CUDA Version\s*:\s*(\d[\d.]*)")
    return gpus.FACT.read(recording).cuda_version if version is None else version


def _words(versions: Versions) -> str:
    shown = {
        "python": versions.python3,
        "torch": versions.torch,
        "cuda": versions.cuda,
        "nccl": versions.nccl,
        "driver": versions.driver,
        "iperf3": versions.iperf3,
    }
    return ", ".join(f"{name} {version or '-'}" for name, version in shown.items())


FACT = Fact("versions", _commands, _read, _words, row=500)

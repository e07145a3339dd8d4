"""Versions as a job would load them: from the venv's files and the loaded driver, never by importing torch."""

import re
from collections.abc import Callable

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, entry, output
from nodectl.facts.gpus import COMMAND as NVIDIA_SMI_QUERY
from nodectl.facts.gpus import query
from nodectl.model.facts import Versions
from nodectl.model.recording import Command, Recording

# NAME VERSION a line, of the wheels that decide what a job loads; then torch's own word on its build
_VENV = """\
printf 'venv %s\\n' "$1"
[ -d "$1" ] || exit 0
printf 'python %s\\n' "$(sed -n 's/^version\\(_info\\)\\{0,1\\} *= *//p' "$1/pyvenv.cfg" | head -n 1)"
for folder in "$1"/lib/python3*/site-packages/*.dist-info; do
  name=${folder##*/}; name=${name%.dist-info}
  case $name in torch-* | nvidia_nccl_* | nvidia_cuda_runtime*) printf 'wheel %s\\n' "$name" ;; esac
done
sed -n "s/^cuda.*= *'\\(.*\\)'.*/cuda \\1/p; s/^cuda.*= *None.*/cuda None/p" \\
  "$1"/lib/python3*/site-packages/torch/version.py 2>/dev/null
exit 0
"""


def _commands(venv: str) -> tuple[Command, ...]:
    return (
        Command("python3", ("python3", "--version")),
        Command("venv", ("sh", "-c", _VENV, "venv", venv)),
        Command("nvidia-smi-version", ("nvidia-smi", "--version")),
        Command("proc-driver-nvidia", ("cat", "/proc/driver/nvidia/version")),
        Command("iperf3-version", ("iperf3", "--version")),
        NVIDIA_SMI_QUERY,
    )


def _read(recording: Recording) -> Versions:
    venv, found = _venv(recording)
    unavailable: dict[str, str] = {}

    def of(name: str, read: Callable[[], str | None], why: str) -> str | None:
        """One version; where there is none, why."""
        try:
            value, reason = read(), why
        except (AbsentError, UnknownError, ParseError) as error:
            value, reason = None, str(error)
        if value is None:
            unavailable[name] = reason
        return value

    no_venv = f"no venv in {venv}"
    missing = no_venv if "python" not in found else "no such wheel in the venv"
    return Versions(
        venv=venv,
        python3=of("python3", lambda: _after(output(recording, "python3"), r"Python (\S+)"), "not printed"),
        venv_python=of("venv_python", lambda: found.get("python"), no_venv),
        torch=of("torch", lambda: found.get("torch"), missing),
        cuda=of("cuda", lambda: found.get("cuda"), "torch is built without CUDA" if "torch" in found else missing),
        nccl=of("nccl", lambda: found.get("nccl"), missing),
        driver=of("driver", lambda: _driver(recording), "no NVIDIA driver is loaded"),
        driver_cuda=of("driver_cuda", lambda: _driver_cuda(recording), "not printed by this nvidia-smi"),
        iperf3=of("iperf3", lambda: _after(output(recording, "iperf3-version"), r"iperf (\S+)"), "not printed"),
        unavailable=unavailable,
    )


def _venv(recording: Recording) -> tuple[str, dict[str, str]]:
    """The venv's folder, and versions by name."""
    found: dict[str, str] = {}
    for line in output(recording, "venv").splitlines():
        kind, _, value = line.partition(" ")
        if kind == "wheel":
            name, _, version = value.rpartition("-")
            found[_wheel(name)] = version
        elif value and value != "None":
            found.setdefault(kind, value)
    return found.pop("venv"), found


def _wheel(name: str) -> str:
    return "nccl" if name.startswith("nvidia_nccl") else "cuda" if name.startswith("nvidia_cuda_runtime") else name


def _after(text: str, pattern: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def _driver(recording: Recording) -> str | None:
    """The loaded module's version, from the kernel; else what nvidia-smi was told by it."""
    loaded = entry(recording, "proc-driver-nvidia")
    if loaded.exit_status == 0:
        return _after(loaded.stdout, r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)")
    rows = query(recording).gpus
    version = rows[0].values.get("driver_version") if rows else None
    return None if version is None else str(version)


def _driver_cuda(recording: Recording) -> str | None:
    return _after(entry(recording, "nvidia-smi-version").stdout, r"CUDA Version\s*:\s*(\d[\d.]*)")


FACT = Fact("versions", _commands, _read)

"""What all outputs of nvidia-smi share: words for a value that is refused, lost GPUs, and why there is no output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from nodectl.errors import ParseError
from nodectl.facts.parsers.text import Line, bus_id, unreadable

# NVML's error texts as they stand for a value, bare in `-q`, in brackets in CSV
_REFUSED = re.compile(
    r"\[?(?:N/A|ERR!|Unknown Error|Not (?:Supported|Available|Found|Allowed)|Function Not Found|No Permission"
    r"|(?:The )?requested functionality has been deprecated"
    r"|Insufficient (?:Permissions|External Power|Resources|Memory|Size)"
    r"|GPU (?:is lost|requires (?:reset|restart))|Reset Required|Driver Not Loaded|Corrupted infoROM|Timeout"
    r"|Not available in (?:the )?\w{2,8} driver model"
    r"|(?:Argument|Driver/library) version mismatch|(?:System is )?not (?:in )?ready(?: state)?|Invalid State"
    r"|GPU not found|NVML Shared Library Not Found"
    r"|Invalid Argument|Uninitialized|Interrupt Request Issue|In use by another client|No data"
    r"|(?:The operating system|GPU access) (?:has )?blocked[^\]]*)\.?\]?",
    re.IGNORECASE,
)
_NEEDS_RESET = re.compile("requires re(?:set|start)|reset required", re.IGNORECASE)
_LOST = re.compile(
    r"Unable to determine the (?:device handle for (?:the )?GPU ?[0-9]*|product name for gpu [0-9]+: GPU is lost)"
    r"|(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): GPU is lost.*",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_WARNING = re.compile(r"WARNING: .*(?:infoROM|GPU).*", re.IGNORECASE)
_FAILURES = re.compile(
    r"NVIDIA-SMI has failed|Failed to initialize NVML|No devices were found|No MIG devices found|couldn't find lib"
    r"|is not a valid field to query|Unable to determine the device handle|GPU is lost|blocked by the operating system"
    r"|nvidia-smi: (?:command )?not found|command not found|Invalid combination of input arguments|Segmentation fault"
    r"|not supported|not support Nvlink|Insufficient Permissions|Failed to |No such file or directory|Killed|ERROR:"
    r"|is not recognized|Option .* is not",
    re.IGNORECASE,
)


_AMD = re.compile(r"ROCm System Management Interface|\brocm-smi\b|\bROCm?-?SMI\b|\bamd-smi\b|\bAMD-SMI\b")


@dataclass(frozen=True, slots=True)
class LostGpu:
    """A GPU that the driver cannot reach any more; `bus_id` where nvidia-smi names it."""

    bus_id: str | None
    text: str


@lru_cache(maxsize=4096)
def refused(value: str) -> bool:
    """nvidia-smi does not give this value: not here, not on this GPU, not to this user, or not any more."""
    return _REFUSED.fullmatch(value) is not None


def is_lost(value: str) -> bool:
    """nvidia-smi's word, in place of a value, for a GPU that it cannot reach any more."""
    return "gpu is lost" in value.lower()


def needs_reset(value: str) -> bool:
    """nvidia-smi's word, in place of a value, for a GPU that has to be reset first."""
    return _NEEDS_RESET.search(value) is not None


def lost_gpu(text: str) -> LostGpu | None:
    """Return the GPU that a line reports as lost, if it is such a line."""
    if "device handle" not in text and "lost" not in text.lower():
        return None
    match = _LOST.search(text)
    if match is None:
        return None
    if match["bus"]:
        return LostGpu(bus_id(match["bus"]), text.strip())
    # "GPU3: 0000:5F:00.0: …", "GPU 0000:01:00.0: …" and "GPU0000:25:00.0: …" are all printed
    address = _ADDRESS.search(text, match.start())
    return LostGpu(bus_id(address[0]) if address else None, text.strip())


def warning(text: str) -> str | None:
    """Return a line such as `WARNING: infoROM is corrupted at gpu 0000:02:00.0`, before or after the output."""
    return text.strip() if "WARNING" in text and _WARNING.search(text) else None


def reason_in(text: str) -> str:
    """Return the line of a failed call that explains it: the last known failure, else the last line; "" for none."""
    lines = text.strip().splitlines()
    return next((line for line in reversed(lines) if _FAILURES.search(line[:2000])), lines[-1] if lines else "")


def no_output(tool: str, lines: Sequence[Line], expected: str) -> ParseError:
    """Return the error for a text without the tool's output: its own reason where printed, else the first line."""
    written = [line for line in lines if line.text.strip()]
    for line in written:
        if _AMD.search(line.text[:2000]):
            return unreadable(tool, line, "this is of rocm-smi or amd-smi: AMD's GPUs are not read")
        if _FAILURES.search(line.text[:2000]):
            return unreadable(tool, line, "this is why it failed, not its output")
    if not written:
        return ParseError(f"{tool}: no {expected}, only lines of many thousand characters")
    return unreadable(tool, written[0], f"no {expected} follows")


# what a shell, a scheduler or a logger writes between the lines of a table
_NOISE = re.compile(
    r"\s*(?:[$#>%] |\+ |\S+@\S+[:~]|\[[^\]]*\] ?|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]|[A-Z][a-z]{2} +[0-9]+ [0-9:]{8} "
    r"|(?:\w{1,40} )?(?:WARNING|WARN|INFO|ERROR|DEBUG|NOTE|Warning|Error|Note)\b"
    r"|(?:srun|slurmstepd|mpirun|mpiexec|kernel|sudo|bash)\b)"
)


def is_noise(text: str) -> bool:
    """Return whether it is a prompt or a log line, by its beginning: for lines that do not have a row's form."""
    return _NOISE.match(text) is not None

"""Reads `nvidia-smi --version`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.parsers.nvidia.words import no_output
from nodectl.parsers.text import lines_of, unreadable, untagged

TOOL = "nvidia-smi-version"
_ROW = re.compile(r"(?P<what>NVIDIA-SMI|NVML|DRIVER|KMD|CUDA(?: UMD)?|Driver) [Vv]ersion\s*:\s*(?P<version>.*)")
_NAMES = {"NVIDIA-SMI": "smi", "NVML": "nvml", "DRIVER": "driver", "KMD": "driver", "Driver": "driver"}


@dataclass(frozen=True, slots=True)
class NvidiaSmiVersion:
    """The versions; None for what is not printed, or refused as `driver` is where none is loaded."""

    smi: str | None
    nvml: str | None
    driver: str | None
    cuda: str | None


def parse_nvidia_smi_version(text: str) -> NvidiaSmiVersion:
    """ParseError for a row without its version, and where there is none."""
    lines = list(untagged(lines_of(text, TOOL)))
    versions: dict[str, str | None] = {}
    for line in lines:
        if match := _ROW.fullmatch(line.text.strip()):
            version = match["version"].partition("[Deprecated")[0].strip()
            if not version:
                raise unreadable(TOOL, line, "the version is cut")
            number = version if version[:1].isdigit() else None
            versions.setdefault(_NAMES.get(match["what"], "cuda"), number)
    if not versions:
        raise no_output(TOOL, lines, "'NVIDIA-SMI version  : …'")
    return NvidiaSmiVersion(*(versions.get(name) for name in ("smi", "nvml", "driver", "cuda")))

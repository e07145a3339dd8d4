"""Reads `nvidia-smi -L`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.parsers.nvidia.words import LostGpu, lost_gpu, no_output, refused
from nodectl.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvidia-smi-list"
GPU_ROW = re.compile(r"GPU ([0-9]{1,6}): (.*?) ?\(UUID: ([^()]+)\)\s*")
_MIG_ROW = re.compile(r"MIG (\S+) +Device +([0-9]{1,6}): \(UUID: ([^()]+)\)\s*")
_STARTS_GPU = re.compile(r"GPU +[0-9]+(?::|$)")
_STARTS_MIG = re.compile(r"MIG +[0-9]+[gc.]")


@dataclass(frozen=True, slots=True)
class ListedMig:
    """A slice of a GPU, by its place in the GPU's list."""

    profile: str
    uuid: str
    index: int


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """A GPU and its slices; none where MIG is off, or on without an instance."""

    index: int
    name: str | None
    uuid: str | None
    mig_devices: tuple[ListedMig, ...]
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiList:
    """All GPUs that the driver shows; `lost` holds those that it cannot reach any more."""

    gpus: tuple[ListedGpu, ...]
    lost: tuple[LostGpu, ...] = ()


def parse_nvidia_smi_list(text: str) -> NvidiaSmiList:
    """ParseError for a cut row, or where there is none."""
    lines = list(untagged(lines_of(text, TOOL)))
    gpus: list[tuple[int, str, str, list[ListedMig]]] = []
    lost: list[LostGpu] = []
    for line in lines:
        content = line.text.strip()
        if gone := lost_gpu(content):
            lost.append(gone)
        elif _STARTS_GPU.match(content):
            gpus.append((*gpu_row(TOOL, line, content), []))
        elif _STARTS_MIG.match(content):
            match = _MIG_ROW.fullmatch(content)
            if match is None or not gpus:
                raise unreadable(TOOL, line, "no whole row of a MIG device below its GPU")
            gpus[-1][3].append(ListedMig(match[1], match[3], int(match[2])))
    if not gpus:
        raise no_output(TOOL, lines, "'GPU 0: <name> (UUID: …)'")
    return NvidiaSmiList(tuple(_gpu(*gpu) for gpu in gpus), tuple(lost))


def gpu_row(tool: str, line: Line, content: str) -> tuple[int, str, str]:
    """Index, name and UUID of a row; ParseError where it is cut."""
    match = GPU_ROW.fullmatch(content)
    if match is None:
        raise unreadable(tool, line, "no 'GPU <index>: <name> (UUID: …)'")
    return int(match[1]), match[2], match[3].strip()


def _gpu(index: int, name: str, uuid: str, mig_devices: list[ListedMig]) -> ListedGpu:
    printed = {"name": name, "uuid": uuid}
    unavailable = {key: value for key, value in printed.items() if refused(value)}
    given = {key: None if key in unavailable or not value else value for key, value in printed.items()}
    return ListedGpu(index, given["name"], given["uuid"], tuple(mig_devices), unavailable)

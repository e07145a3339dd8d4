"""Reads `nvidia-smi nvlink -s` (state and rate of each link) and `-e` (its errors), or both in one text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.facts.parsers.nvidia.words import LostGpu, lost_gpu, no_output, refused
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvidia-smi-nvlink"
_STARTS_GPU = re.compile(r"GPU +[0-9]+(?::|$)")
_GPU_ROW = re.compile(r"GPU ([0-9]{1,6}): (.*?) ?\(UUID: ([^()]+)\)\s*")
_LINK = re.compile(r"Link ([0-9]{1,6}): *(.*)")
_SPEED = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) GB/s")
_COUNTER = re.compile(r"(?P<name>[^:]{1,80}?) *: *(?P<value>.+)")
# drivers up to 470 print `Link 0: 4 flit CRC errors`, then `Link 0:` above the rows of its lanes
_OLD_COUNTER = re.compile(r"(?P<value>[0-9]{1,20}) (?:flit )?(?P<name>(?:replay|recovery|CRC) errors)")
_LANE = re.compile(r"Lane [0-9]{1,3} .+: .+")
_WHOLE = re.compile(r"[0-9]{1,20}")
_CUT_LINK = re.compile(r"Link *[0-9]*:?")
_COUNTERS = {"replay errors": "replay_errors", "recovery errors": "recovery_errors", "crc errors": "crc_errors"}
_NO_NVLINK = re.compile(r"does not (?:have|support).*nvlink", re.IGNORECASE)
_NOT_TOLD = re.compile(r"nvlink (?:queries|information)|all links are inactive|NVML: ", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NvLink:
    """One link; `errors` holds every counter under its printed name, newer drivers have others than the three."""

    link: int
    active: bool | None
    speed_gb_s: float | None
    replay_errors: int | None
    recovery_errors: int | None
    crc_errors: int | None
    errors: Mapping[str, int | str] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvLinkGpu:
    """A GPU's links: none where it has no NVLink, None where nvidia-smi does not tell (`message` says why)."""

    index: int
    name: str | None
    uuid: str | None
    links: tuple[NvLink, ...] | None
    message: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiNvlink:
    """All GPUs in the order of the output."""

    gpus: tuple[NvLinkGpu, ...]
    lost: tuple[LostGpu, ...] = ()


@dataclass(slots=True)
class _Gpu:
    index: int
    name: str
    uuid: str
    rows: list[Line] = field(default_factory=list)
    message: str | None = None


def parse_nvidia_smi_nvlink(text: str) -> NvidiaSmiNvlink:
    """Read the output; raise ParseError for a cut row, or if no GPU is named."""
    lines = list(untagged(lines_of(text, TOOL)))
    gpus: dict[int, _Gpu] = {}
    lost: list[LostGpu] = []
    gpu: _Gpu | None = None
    for line in lines:
        content = line.text.strip()
        if gpu is not None and _LINK.fullmatch(content) and not lost_gpu(content):
            gpu.rows.append(line)
        elif gpu is not None and gpu.rows and _LANE.fullmatch(content):
            above = gpu.rows[-1].text.partition(":")
            gpu.rows[len(gpu.rows) - (not above[2].strip()) :] = [Line(line.number, f"{above[0]}: {content}")]
        elif gone := lost_gpu(content):
            lost.append(gone)
        elif _STARTS_GPU.match(content):
            match = _GPU_ROW.fullmatch(content)
            if match is None:
                raise unreadable(TOOL, line, "no 'GPU <index>: <name> (UUID: …)'")
            index, uuid = int(match[1]), match[3].strip()
            gpu = gpus.setdefault(index, _Gpu(index, match[2], uuid))
            if gpu.uuid != uuid:
                raise unreadable(TOOL, line, f"GPU {index} has another UUID above: these are outputs of two machines")
        elif _LINK.fullmatch(content):
            raise unreadable(TOOL, line, "a link before any GPU")
        elif _CUT_LINK.fullmatch(content):
            raise unreadable(TOOL, line, "the row of a link is cut")
        elif gpu is not None and (_NO_NVLINK.search(content) or _NOT_TOLD.search(content)):
            gpu.message = content
    if not gpus:
        raise no_output(TOOL, lines, "'GPU 0: <name> (UUID: …)'")
    return NvidiaSmiNvlink(tuple(map(_frozen, gpus.values())), tuple(lost))


def _link(number: int, lines: Sequence[Line]) -> NvLink:
    active: bool | None = None
    speed_gb_s: float | None = None
    errors: dict[str, int | str] = {}
    unavailable: dict[str, str] = {}
    for line in lines:
        value = line.text
        if value.strip("<>").lower() == "inactive":
            active = False
        elif speed := _SPEED.fullmatch(value):
            active, speed_gb_s = True, float(speed[1])
        elif refused(value):
            unavailable["active"] = unavailable["speed_gb_s"] = value
        elif counter := _OLD_COUNTER.fullmatch(value) or _COUNTER.fullmatch(value):
            name, text = (counter["name"], counter["value"].strip())
            key = _COUNTERS.get(name.lower())
            if refused(text):
                unavailable[key or name] = text
            elif key and not _WHOLE.fullmatch(text):
                raise unreadable(TOOL, line, "the counter is no number")
            else:
                errors[name] = int(text) if _WHOLE.fullmatch(text) else text
        else:
            raise unreadable(TOOL, line, "neither a rate in GB/s, <inactive>, nor a counter")
    counts = {name.lower(): count for name, count in errors.items() if isinstance(count, int)}
    three = {key: counts.get(name) for name, key in _COUNTERS.items()}
    return NvLink(number, active, speed_gb_s, **three, errors=errors, unavailable=unavailable)


def _frozen(gpu: _Gpu) -> NvLinkGpu:
    unavailable = {"uuid": gpu.uuid} if refused(gpu.uuid) else {}
    if gpu.message is not None and not gpu.rows and not _NO_NVLINK.search(gpu.message):
        unavailable["links"] = gpu.message
    none = () if gpu.message is not None and "links" not in unavailable else None
    values: dict[int, list[Line]] = {}
    for row in gpu.rows:
        label, _, value = row.text.strip().removeprefix("Link ").partition(":")
        values.setdefault(int(label), []).append(Line(row.number, value.strip()))
    return NvLinkGpu(
        index=gpu.index,
        name=gpu.name or None,
        uuid=None if "uuid" in unavailable else gpu.uuid,
        links=tuple(_link(number, lines) for number, lines in values.items()) if values else none,
        message=gpu.message,
        unavailable=unavailable,
    )

"""Reads `nvidia-smi -q`, as text or as XML (`-x`), whole or in part (`-d`), of drivers from 3xx on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from nodectl.facts.parsers.nvidia.smi_q.fields import (
    COUNT,
    COUNTERS,
    FLAG,
    REASONS,
    TEXT,
    US,
    GpuProcess,
    GpuStatus,
    Kind,
    NvidiaSmiQ,
    Place,
    places_of,
    sums,
)
from nodectl.facts.parsers.nvidia.smi_q.forms import Block, Log, Value, Values, read_text, read_xml
from nodectl.facts.parsers.nvidia.words import no_output, refused
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvidia-smi-q"
_DEPRECATED = re.compile(r" \[Deprecated[^\]]*\]$")
# words for 'this GPU has no such counter'; any other refusal leaves a sum unknown
_ABSENT = re.compile(r"\[?(?:N/A|Not Supported)\]?", re.IGNORECASE)


class Refused(NamedTuple):
    """nvidia-smi's word in place of a value."""

    text: str


def parse_nvidia_smi_q(text: str) -> NvidiaSmiQ:
    """Return the report; ParseError for a garbled value, or where nvidia-smi says why there is no report."""
    lines = lines_of(text, TOOL)
    if "<nvidia_smi_log" in text:
        return _report(read_xml(lines), lines)
    lines = list(untagged(lines))
    return _report(read_text(lines), lines)


def _report(log: Log, lines: Sequence[Line]) -> NvidiaSmiQ:
    """Return the report that a log holds; ParseError for a value of another kind than the field's."""
    header = log.header
    attached = _plain(COUNT, header.get("attached_gpus"))
    if not log.blocks and attached and len(log.lost) < attached:
        raise no_output(TOOL, lines, "'GPU <bus id>'")
    unavailable: dict[str, str] = {}

    def text(key: str, *names: str) -> str | None:
        value = next((header[name] for name in names if name in header), None)
        printed = _reading(TEXT, value)
        if isinstance(printed, Refused):
            unavailable[key] = printed.text
            return None
        return None if printed is None else _DEPRECATED.sub("", str(printed))

    is_cut = _is_cut(log.blocks)
    gpus = [_gpu(block, last=block is log.blocks[-1]) for block in log.blocks]
    if is_cut:
        none: dict[str, Any] = dict.fromkeys(_cut_sums(log.blocks[-1]))
        gpus[-1] = replace(gpus[-1], **none)
    return NvidiaSmiQ(
        driver_version=text("driver_version", "kmd_version", "driver_version"),
        cuda_version=text("cuda_version", "cuda_umd_version", "cuda_version"),
        attached_gpus=attached,
        gpus=tuple(gpus),
        lost=tuple(log.lost),
        warnings=tuple(log.warnings),
        timestamp=text("timestamp", "timestamp"),
        unavailable=unavailable,
        is_cut=is_cut,
    )


def _is_cut(blocks: Sequence[Block]) -> bool:
    """Return whether the last part lacks what every other part ends with; of a single one, what a report ends with."""
    if not blocks:
        return False
    *others, last = blocks
    if not others:
        return last.processes is None and "processes" not in last.values and "product_name" in last.values
    ends = {next(reversed(block.values), "") for block in others}
    has_processes = last.processes is not None or "processes" in last.values
    needs_processes = all(block.processes is not None or "processes" in block.values for block in others)
    return not ends & last.values.keys() or (needs_processes and not has_processes)


def _cut_sums(block: Block) -> list[str]:
    """Return the sums of which only some parts may be printed: those of the section in which the report ends."""
    section = next(reversed(block.values), "").rpartition("/")[0]
    places = {name: [path for group in groups for path in group] for name, groups in sums().items()}
    return [name for name, paths in places.items() if any(path.rpartition("/")[0] == section for path in paths)]


def _gpu(block: Block, last: bool) -> GpuStatus:
    """Return all fields of one GPU."""
    unavailable: dict[str, str] = {}
    values = block.values
    named = _fields(GpuStatus, values, unavailable)
    for name, groups in sums().items():
        named[name] = _sum(values, groups, name, unavailable)
    named["clock_event_reasons"] = _reasons(values, unavailable)
    named["retired_pages_pending"] = _pending(values, unavailable)
    processes = block.processes
    if processes is None and (value := values.get("processes")) and refused(value.text):
        unavailable["processes"] = value.text
    printed = {
        name: next((values[path] for path in places if path in values), None) for name, places in COUNTERS.items()
    }
    counters = {name: _plain(US, value) for name, value in printed.items()}
    return GpuStatus(
        bus_id=block.bus_id,
        **named,
        clock_event_counters_us={name: count for name, count in counters.items() if count is not None},
        processes=None if processes is None else _processes(processes, last),
        unavailable=unavailable,
    )


def _fields(kind: Any, values: Values, unavailable: dict[str, str]) -> dict[str, Any]:
    """Return the fields of the dataclass `kind` that have a place, by name."""
    return {
        name: _kept(_reading(place.kind, _printed(values, place)), name, unavailable)
        for name, place in places_of(kind).items()
    }


def _reading(kind: Kind, value: Value | None) -> Any:
    """Return what the field holds, a Refused, or None if nothing is printed."""
    if value is None or (value.text == "" and kind is TEXT):
        return None
    if not value.text:
        raise unreadable(TOOL, value.line, "the value is missing")
    return _understood(kind, value.text)


@lru_cache(maxsize=4096)
def _understood(kind: Kind, text: str) -> Any:
    """Return the value or a Refused, as for a word or number that is no value of this kind.

    GPUs of one kind print few different values, and each is read once.
    """
    try:
        return Refused(text) if refused(text) else kind(text)
    except ValueError:
        return Refused(text)


def _plain(kind: Kind, value: Value | None) -> Any:
    """Return the value, or None if it is refused."""
    reading = _reading(kind, value)
    return None if isinstance(reading, Refused) else reading


def _kept(reading: Any, name: str, unavailable: dict[str, str]) -> Any:
    if isinstance(reading, Refused):
        unavailable[name] = reading.text
        return None
    return reading


def _sum(values: Values, groups: Sequence[Sequence[str]], name: str, unavailable: dict[str, str]) -> int | None:
    """Return the sum over the first group that is printed; a part that this GPU does not count adds nothing.

    Of a sum with a part that is refused, the rest is a lower bound; if it counts nothing, it tells nothing.
    """
    printed = ([values[path] for path in group if path in values] for group in groups)
    readings = [_reading(COUNT, value) for value in next(filter(None, printed), ())]
    if not readings:
        whole = values.get(groups[0][0].split("/")[0])
        return _kept(Refused(whole.text), name, unavailable) if whole is not None and refused(whole.text) else None
    words = [reading for reading in readings if isinstance(reading, Refused)]
    failed = [word for word in words if not _ABSENT.fullmatch(word.text)]
    total: int = sum(reading for reading in readings if not isinstance(reading, Refused))
    if failed or len(words) == len(readings):
        _kept((failed or words)[0], name, unavailable)
        return total or None
    return total


def _reasons(values: Values, unavailable: dict[str, str]) -> tuple[str, ...] | None:
    """Return the active reasons for a lower clock."""
    active: list[str] = []
    refusals: dict[str, str] = {}
    is_read = False
    for path, value in values.items():
        if path.partition("/")[0] not in ("clocks_event_reasons", "clocks_throttle_reasons"):
            continue
        name = re.sub("^clocks_(?:event|throttle)_reason_", "", path.rpartition("/")[2])
        is_active = _reading(FLAG, value) if value.text else None
        if isinstance(is_active, Refused):
            refusals[REASONS.get(name, name)] = is_active.text
            continue
        is_read = True
        if is_active and name in REASONS:
            active.append(REASONS[name])
    if not is_read:
        if refusals:
            unavailable["clock_event_reasons"] = next(iter(refusals.values()))
        return None
    unavailable.update({f"clock_event_reasons.{name}": word for name, word in refusals.items()})
    order = list(dict.fromkeys(REASONS.values()))
    return tuple(sorted(set(active), key=order.index))


def _pending(values: Values, unavailable: dict[str, str]) -> bool | None:
    names = ("pending_page_blacklist", "pending", "pending_blacklist", "pending_retirement")
    printed = [values[path] for path in (f"retired_pages/{name}" for name in names) if path in values]
    if not printed and (section := values.get("retired_pages")):
        printed = [section]
    flags = [_reading(FLAG, value) for value in printed]
    answers = [flag for flag in flags if isinstance(flag, bool)]
    if flags and not answers:
        unavailable["retired_pages_pending"] = printed[0].text
    return any(answers) if answers else None


def _processes(listed: list[Values], last: bool) -> tuple[GpuProcess, ...]:
    processes = []
    for values in listed:
        unavailable: dict[str, str] = {}
        named = _fields(GpuProcess, values, unavailable)
        if named["pid"] is None:
            if last and values is listed[-1] and not {"type", "name", "process_name"} & set(values):
                continue  # the output is cut before its identity
            raise unreadable(TOOL, next(iter(values.values())).line, "a process without its ID")
        processes.append(GpuProcess(**named, unavailable=unavailable))
    return tuple(processes)


def _printed(values: Values, place: Place) -> Value | None:
    """Return the first path that holds a value; else a refusal of it, or of the section that it stands in."""
    word: Value | None = None
    for path in place.paths:
        value = values.get(path)
        if value is not None:
            if not refused(value.text):
                return value
            word = word or value
    if word is None:
        for section in place.sections:
            value = values.get(section)
            if value is not None and refused(value.text):
                return value
    return word

"""Reads `nvidia-smi -q`, as text or as XML (`-x`), whole or in part (`-d`), of drivers from 3xx on."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    MigDevice,
    NvidiaSmiQ,
    Place,
    places_of,
    sums,
)
from nodectl.facts.parsers.nvidia.smi_q.forms import Block, Log, Value, Values
from nodectl.facts.parsers.nvidia.words import no_output, refused
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvidia-smi-q"
_DEPRECATED = re.compile(r" \[Deprecated[^\]]*\]$")
# words for 'this GPU has no such counter'; any other refusal leaves a sum unknown
_ABSENT = re.compile(r"\[?(?:N/A|Not Supported)\]?", re.IGNORECASE)


_NOTHING = Value("", Line(0, ""))


class Refused(NamedTuple):
    """nvidia-smi's word in place of a value."""

    text: str


def parse_nvidia_smi_q(text: str) -> NvidiaSmiQ:
    """Return the report; ParseError for a garbled value, or where nvidia-smi says why there is no report."""
    if "<nvidia_smi_log" in text:
        from nodectl.facts.parsers.nvidia.smi_q.forms import read_xml

        lines = lines_of(text, TOOL)
        return _report(read_xml(lines), lines)
    from nodectl.facts.parsers.nvidia.smi_q.forms import read_text

    lines = list(untagged(lines_of(text, TOOL)))
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

    return NvidiaSmiQ(
        driver_version=text("driver_version", "kmd_version", "driver_version"),
        cuda_version=text("cuda_version", "cuda_umd_version", "cuda_version"),
        attached_gpus=attached,
        gpus=tuple(_gpu(block, last=block is log.blocks[-1]) for block in log.blocks),
        lost=tuple(log.lost),
        warnings=tuple(log.warnings),
        timestamp=text("timestamp", "timestamp"),
        unavailable=unavailable,
        is_cut=_is_cut(log.blocks),
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


def _gpu(block: Block, last: bool) -> GpuStatus:
    """All fields of one GPU."""
    unavailable: dict[str, str] = {}
    values, plan = block.values, _plan(tuple(block.values))
    named = _fields(plan.layout, values, unavailable)
    for name, paths, section in plan.sums:
        named[name] = _kept(_sum(values, paths, section), name, unavailable)
    reasons = tuple((name, values[path]) for name, path in plan.reasons)
    named["clock_event_reasons"], other = _reasons(reasons, unavailable)
    named["retired_pages_pending"] = _pending(values, unavailable)
    processes = block.processes
    if processes is None and (value := values.get("processes")) and refused(value.text):
        unavailable["processes"] = value.text
    counters = {name: _plain(US, values[path]) for name, path in plan.counters}
    return GpuStatus(
        bus_id=block.bus_id,
        **named,
        clock_event_reasons_other=other,
        clock_event_counters_us={name: count for name, count in counters.items() if count is not None},
        mig_devices=None if block.mig_devices is None else tuple(map(_mig_device, block.mig_devices)),
        processes=None if processes is None else _processes(processes, last),
        unavailable=unavailable,
    )


# the fields of which nothing is printed, and the others with where
_Layout = tuple[dict[str, None], tuple[tuple[str, Kind, str, Place], ...]]


class _Plan(NamedTuple):
    """The paths of a GPU that are looked at; `reasons` and `counters` are (name, path)."""

    layout: _Layout
    sums: tuple[tuple[str, tuple[str, ...], str], ...]
    reasons: tuple[tuple[str, str], ...]
    counters: tuple[tuple[str, str], ...]


@lru_cache(maxsize=64)
def _plan(paths: tuple[str, ...]) -> _Plan:
    """GPUs of one kind print the same paths."""
    printed_paths = set(paths)
    first = {name: next((path for path in places if path in printed_paths), None) for name, places in COUNTERS.items()}
    counters = tuple((name, path) for name, path in first.items() if path is not None)
    return _Plan(_layout(GpuStatus, paths), _summed(paths), _reason_paths(paths), counters)


def _fields(layout: _Layout, values: Values, unavailable: dict[str, str]) -> dict[str, Any]:
    """Return the class's fields that stand somewhere, by name."""
    blank, printed = layout
    read: dict[str, Any] = dict(blank)
    for name, kind_of, path, place in printed:
        text, line = values.get(path, _NOTHING)
        if text:
            read[name] = reading = _told(kind_of, text, line)
            if reading.__class__ is not Refused:  # as most are
                continue
        value = _printed(values, place)
        read[name] = None if value is None else _kept(_reading(place.kind, value), name, unavailable)
    return read


@lru_cache(maxsize=64)
def _layout(kind: Any, paths: tuple[str, ...]) -> _Layout:
    """Return the layout of the dataclass `kind` where these paths are printed."""
    printed_paths, printed = set(paths), []
    blank: dict[str, None] = {}
    for name, place in places_of(kind).items():
        if matching := [path for path in (*place.paths, *place.sections) if path in printed_paths]:
            printed.append((name, place.kind, matching[0] if matching[0] in place.paths else "", place))
        else:
            blank[name] = None
    return blank, tuple(printed)


def _reading(kind: Kind, value: Value | None) -> Any:
    """Return what the field holds, a Refused, or None where nothing is printed."""
    if value is None or value.text == "":
        if value is not None and kind is not TEXT:
            raise unreadable(TOOL, value.line, "the value is missing")
        return None
    return _told(kind, value.text, value.line)


def _told(kind: Kind, text: str, line: Line) -> Any:
    try:
        return _understood(kind, text)
    except ValueError as error:
        raise unreadable(TOOL, line, str(error)) from None


@lru_cache(maxsize=4096)
def _understood(kind: Kind, text: str) -> Any:
    """Return the value or a Refused; GPUs of one kind print few different values, and each is read once."""
    return Refused(text) if refused(text) else kind(text)


def _plain(kind: Kind, value: Value | None) -> Any:
    """Return the value, or None where it is refused."""
    reading = _reading(kind, value)
    return None if isinstance(reading, Refused) else reading


def _kept(reading: Any, name: str, unavailable: dict[str, str]) -> Any:
    if isinstance(reading, Refused):
        unavailable[name] = reading.text
        return None
    return reading


def _summed(paths: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    """Each sum's name, its first set of paths that is printed at all, and its section."""
    printed_paths, totals = set(paths), []
    for name, groups in sums().items():
        printed = ([path for path in group if path in printed_paths] for group in groups)
        totals.append((name, tuple(next(filter(None, printed), ())), groups[0][0].split("/")[0]))
    return tuple(totals)


def _sum(values: Values, paths: tuple[str, ...], section: str) -> int | Refused | None:
    """Return the sum of these paths; a part that this GPU does not count adds nothing."""
    if not paths:
        whole = values.get(section)
        return Refused(whole.text) if whole is not None and refused(whole.text) else None
    try:
        return _total(tuple(values[path].text for path in paths))
    except ValueError:
        for path in paths:
            _reading(COUNT, values[path])  # it is one of them, and names its line
        raise


@lru_cache(maxsize=1024)
def _total(texts: tuple[str, ...]) -> int | Refused:
    """Return the sum of these texts; ValueError where one is no count."""
    if not all(texts):
        raise ValueError("the value is missing")
    parts = [_understood(COUNT, text) for text in texts]
    unknown = [part for part in parts if isinstance(part, Refused)]
    if unknown:
        failed = [part for part in unknown if not _ABSENT.fullmatch(part.text)]
        if failed or len(unknown) == len(parts):
            return Refused((failed or unknown)[0].text)
        parts = [part for part in parts if not isinstance(part, Refused)]
    total: int = sum(parts)
    return total


def _reason_paths(paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(name, path) of the reasons for a lower clock."""
    reasons = []
    for path in paths:
        section, _, rest = path.partition("/")
        if section in ("clocks_event_reasons", "clocks_throttle_reasons"):
            name = rest.rpartition("/")[2]
            reasons.append((name.removeprefix("clocks_event_reason_").removeprefix("clocks_throttle_reason_"), path))
    return tuple(reasons)


def _reasons(
    printed: Sequence[tuple[str, Value]], unavailable: dict[str, str]
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    active: list[str] = []
    other: list[str] = []
    refusals: dict[str, Refused] = {}
    read = False
    for name, value in printed:
        active_now = _reading(FLAG, value) if value.text else None
        if isinstance(active_now, Refused):
            refusals[REASONS.get(name, name)] = active_now
            continue
        read = True
        if active_now and name in REASONS:
            active.append(REASONS[name])
        elif active_now:
            other.append(name)
    if not read and refusals:
        unavailable["clock_event_reasons"] = next(iter(refusals.values())).text
    elif read:
        unavailable.update({f"clock_event_reasons.{name}": word.text for name, word in refusals.items()})
    order = list(dict.fromkeys(REASONS.values()))
    return (tuple(sorted(set(active), key=order.index)) if read else None), tuple(other)


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


def _mig_device(values: Values) -> MigDevice:
    unavailable: dict[str, str] = {}
    layout = _layout(MigDevice, tuple(values))
    return MigDevice(**_fields(layout, values, unavailable), unavailable=unavailable)


def _processes(listed: list[Values], last: bool) -> tuple[GpuProcess, ...]:
    processes = []
    for values in listed:
        unavailable: dict[str, str] = {}
        named = _fields(_layout(GpuProcess, tuple(values)), values, unavailable)
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

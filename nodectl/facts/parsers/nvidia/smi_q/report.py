"""Reads `nvidia-smi -q`, as text or as XML (`-x`), whole or in part (`-d`), of drivers from 3xx on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
from nodectl.facts.parsers.nvidia.words import LostGpu, lost_gpu, no_output, refused, warning
from nodectl.facts.parsers.text import Line, bus_id, lines_of, unreadable, untagged

TOOL = "nvidia-smi-q"
_DEPRECATED = re.compile(r" \[Deprecated[^\]]*\]$")
# words for 'this GPU has no such counter'; any other refusal leaves a sum unknown
_ABSENT = re.compile(r"\[?(?:N/A|Not Supported)\]?", re.IGNORECASE)


class Value(NamedTuple):
    """A value as printed, and its line."""

    text: str
    line: Line


Values = dict[str, Value]


@dataclass(slots=True)
class Block:
    """One GPU: values by path (`ecc_mode/current`); `processes` is None if the output has no list of them."""

    bus_id: str
    values: Values = field(default_factory=dict)
    processes: list[Values] | None = None

    def put(self, path: str, value: Value) -> None:
        """Put a value of either form at its path; the first one there counts."""
        section, _, rest = path.partition("/")
        if section not in ("processes", *_IGNORED):
            self.values.setdefault(path, value)
        elif section == "processes" and rest:
            self.processes = self.processes or []
            name = rest.rpartition("/")[2]
            if not self.processes or name in self.processes[-1]:  # its first key begins the next process
                self.processes.append({})
            self.processes[-1][name] = value
        elif section == "processes" and value.text in ("", "None"):
            self.processes = self.processes or []
        elif section == "processes":
            self.values[path] = value


@dataclass(slots=True)
class Log:
    """The whole output."""

    header: Values = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    lost: list[LostGpu] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def begin(self, address: str, line: Line) -> None:
        """Begin a GPU; ParseError if that is no PCI address."""
        place = bus_id(address)
        if place is None:
            raise unreadable(TOOL, line, "no PCI address")
        self.blocks.append(Block(place))

    def put(self, path: Sequence[str], value: Value) -> None:
        """Put a value of the XML form at the path below its root."""
        if path[0] == "gpu":
            self.blocks[-1].put("/".join(path[1:]), value)
        elif len(path) == 1:
            self.header.setdefault(path[0], value)

    def note(self, text: str) -> None:
        """Keep a line outside of the report if it names a lost GPU or warns."""
        if lost := lost_gpu(text):
            self.lost.append(lost)
        elif warned := warning(text):
            self.warnings.append(warned)


_GPU = re.compile(r"GPU +(\S+)\s*")
_HEADER = {"timestamp", "driver_version", "cuda_version", "kmd_version", "cuda_umd_version", "attached_gpus"}
_HEADER_LINE = re.compile(r"(?:GPU [0-9a-fA-F]{4,8}:|Driver Version +:|Attached v?GPUs +:|=+NVSMI LOG=)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}")
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_PREFIX_CHARS = 200
_IGNORED = ("supported_clocks", "accounted_processes", "mig_device", "mig_devices")
_ROOT = "<nvidia_smi_log"
_TAG = re.compile(r"<(?P<close>/?)(?P<name>\w{1,60})(?: id=\"(?P<id>[^\"<>]*)\")?\s*(?P<empty>/?)>(?P<text>[^<]*)")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}
_ENTITY = re.compile("|".join(_ENTITIES))
_MAX_DEPTH = 32


def read_text(lines: Sequence[Line]) -> Log:
    """Return the values of the indented form; ParseError if there are none, or the last line is cut."""
    log, above = Log(), [(0, "")]
    # an indent, or the host that a parallel shell names
    heads = ((line.text, _HEADER_LINE.search(line.text[:_PREFIX_CHARS])) for line in lines)
    prefix = next((text[: match.start()] for text, match in heads if match), "")
    for line in lines:
        text = line.text.removeprefix(prefix).expandtabs(8)
        content = text.lstrip(" ")
        indent, (key, colon, printed) = len(text) - len(content), content.partition(":")
        name, value = _name(key), Value(printed.strip(), line)
        if not content:
            continue
        if indent and log.blocks:
            while above[-1][0] >= indent:
                above.pop()
            above.append((indent, f"{above[-1][1]}/{name}".lstrip("/")))
            if line is lines[-1] and not (colon and value.text):  # no newline ends it
                raise unreadable(TOOL, line, "the value is cut" if colon else "the line is cut")
            if colon:
                log.blocks[-1].put(above[-1][1], value)
        elif match := _GPU.fullmatch(content) if not indent else None:
            log.begin(match[1], line)
            above = [(0, "")]
        elif not indent and log.blocks and "NVSMI LOG=" in content:
            _refuse_others(lines, line)  # the next one of `-l` has the same GPUs
            break
        elif not indent and colon and name in _HEADER and not log.blocks:
            log.header.setdefault(name, value)
        elif not indent:
            log.note(content)
    attached = log.header.get("attached_gpus")
    if not log.blocks and (attached is None or attached.text not in ("0", str(len(log.lost) or 0))):
        raise no_output(TOOL, lines, "'GPU <bus id>'")
    return log


@lru_cache(maxsize=4096)
def _name(key: str) -> str:
    return _NOT_WORD.sub("_", key[:_PREFIX_CHARS].lower()).strip("_")


def _refuse_others(lines: Iterable[Line], second: Line) -> None:
    """Raise ParseError if the report that begins at the line `second` has other GPUs than the one before."""
    first, others = set[str](), set[str]()
    for line in lines:
        (first if line.number < second.number else others).update(_UUID.findall(line.text))
    if others - first:
        raise unreadable(TOOL, second, "the report of another machine begins here: give one report")


def read_xml(lines: Sequence[Line]) -> Log:
    """Return the values of the XML form; one that ends between two elements is read as far as it goes."""
    log, path, text, is_leaf = Log(), list[str](), "", False
    # nothing before the root element is read as XML: what declares no entity cannot grow
    first = next(index for index, line in enumerate(lines) if _ROOT in line.text)
    last = next((index for index, line in enumerate(lines) if "</nvidia_smi_log" in line.text), len(lines) - 1)
    if second := next((line for line in lines[last + 1 :] if _ROOT in line.text), None):
        _refuse_others(lines, second)
    prefix = lines[first].text.partition(_ROOT)[0]
    for index, line in enumerate(lines):
        content = line.text.removeprefix(prefix).strip()
        if not (first <= index <= last and content.startswith("<")):  # also a log line between two elements
            text = content if content == "None" else text
            log.note(content)
            continue
        for tag in _tags(content, line):
            if not tag["close"]:
                path.append(tag["name"])
                is_leaf, text = True, tag["text"].strip()
                if path[1:] == ["gpu"]:
                    log.begin(tag["id"] or "", line)
            if tag["close"] or tag["empty"]:
                if path[-1:] != [tag["name"]]:
                    raise unreadable(TOOL, line, "the tags do not match")
                if is_leaf:
                    log.put(path[1:], Value(_ENTITY.sub(lambda match: _ENTITIES[match[0]], text), line))
                path.pop()
                is_leaf = False
            if len(path) > _MAX_DEPTH:
                raise unreadable(TOOL, line, "nested too deep")
    if is_leaf and text:
        raise unreadable(TOOL, lines[last], "the output is cut here")
    return log


def _tags(content: str, line: Line) -> Iterator[re.Match[str]]:
    position = 0
    while position < len(content):
        tag = _TAG.match(content, position)
        if tag is None:
            raise unreadable(TOOL, line, "the output is cut or garbled here")
        yield tag
        position = tag.end()


def parse_nvidia_smi_q(text: str) -> NvidiaSmiQ:
    """Return the report; ParseError for a garbled value, or where nvidia-smi says why there is no report."""
    lines = lines_of(text, TOOL)
    if _ROOT in text:
        return _report(read_xml(lines), lines)
    lines = list(untagged(lines))
    return _report(read_text(lines), lines)


def _report(log: Log, lines: Sequence[Line]) -> NvidiaSmiQ:
    header, unavailable = log.header, dict[str, str]()
    attached = _reading(COUNT, header.get("attached_gpus"))[0]
    if not log.blocks and attached and len(log.lost) < attached:
        raise no_output(TOOL, lines, "'GPU <bus id>'")

    def text(key: str, *names: str) -> str | None:
        printed = _kept(
            _reading(TEXT, next((header[name] for name in names if name in header), None)), key, unavailable
        )
        return None if printed is None else _DEPRECATED.sub("", printed)

    is_cut = _is_cut(log.blocks)
    gpus = [_gpu(block, last=block is log.blocks[-1]) for block in log.blocks]
    if is_cut:  # of the section in which the report ends, only some parts of a sum may be printed
        section = next(reversed(log.blocks[-1].values), "").rpartition("/")[0]
        cut = [name for name, groups in sums().items() if any(path.startswith(f"{section}/") for path in groups[0])]
        gpus[-1] = replace(gpus[-1], **dict.fromkeys(cut))  # type: ignore[arg-type]
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
    *others, last = blocks or [Block("")]
    has_processes = last.processes is not None or "processes" in last.values
    if not others:
        return not has_processes and "product_name" in last.values
    ends = {next(reversed(block.values), "") for block in others}
    needs_processes = all(block.processes is not None or "processes" in block.values for block in others)
    return not ends & last.values.keys() or (needs_processes and not has_processes)


def _gpu(block: Block, last: bool) -> GpuStatus:
    unavailable: dict[str, str] = {}
    values, processes = block.values, block.processes
    named = _fields(GpuStatus, values, unavailable)
    for name, groups in sums().items():
        named[name] = _sum(values, groups, name, unavailable)
    named["clock_event_reasons"] = _reasons(values, unavailable)
    named["retired_pages_pending"] = _pending(values, unavailable)
    if processes is None and (value := values.get("processes")) and refused(value.text):
        unavailable["processes"] = value.text
    counters = {
        name: _reading(US, next((values[path] for path in places if path in values), None))[0]
        for name, places in COUNTERS.items()
    }
    return GpuStatus(
        bus_id=block.bus_id,
        **named,
        clock_event_counters_us={name: count for name, count in counters.items() if count is not None},
        processes=None if processes is None else _processes(processes, last),
        unavailable=unavailable,
    )


def _fields(kind: Any, values: Values, unavailable: dict[str, str]) -> dict[str, Any]:
    return {
        name: _kept(_reading(place.kind, _printed(values, place)), name, unavailable)
        for name, place in places_of(kind).items()
    }


def _reading(kind: Kind, value: Value | None) -> tuple[Any, str]:
    """Return what the field holds, None if it is not printed or refused; and nvidia-smi's word for a refusal."""
    if value is None or (value.text == "" and kind is TEXT):
        return None, ""
    if not value.text:
        raise unreadable(TOOL, value.line, "the value is missing")
    return _understood(kind, value.text)


# GPUs of one kind print few different values: each is read once
@lru_cache(maxsize=4096)
def _understood(kind: Kind, text: str) -> tuple[Any, str]:
    try:
        return (None, text) if refused(text) else (kind(text), "")
    except ValueError:  # a word or number that is no value of this kind
        return None, text


def _kept(reading: tuple[Any, str], name: str, unavailable: dict[str, str]) -> Any:
    value, refusal = reading
    if refusal:
        unavailable[name] = refusal
    return value


def _sum(values: Values, groups: Sequence[Sequence[str]], name: str, unavailable: dict[str, str]) -> int | None:
    """Return the sum over the first printed group; a lower bound if a part is refused, None if it counts nothing."""
    printed = ([values[path] for path in group if path in values] for group in groups)
    readings = [_reading(COUNT, value) for value in next(filter(None, printed), ())]
    if not readings:
        whole = values.get(groups[0][0].split("/")[0])
        if whole is not None and refused(whole.text):
            unavailable[name] = whole.text
        return None
    words = [word for _, word in readings if word]
    # a part that this GPU does not count adds nothing
    failed = [word for word in words if not _ABSENT.fullmatch(word)]
    total: int = sum(count for count, word in readings if not word)
    if failed or len(words) == len(readings):
        unavailable[name] = (failed or words)[0]
        return total or None
    return total


def _reasons(values: Values, unavailable: dict[str, str]) -> tuple[str, ...] | None:
    sections = ("clocks_event_reasons", "clocks_throttle_reasons")
    is_active: dict[str, bool | None] = {}
    refusals: dict[str, str] = {}
    for path, value in values.items():
        if path.partition("/")[0] in sections:
            name = re.sub("^clocks_(?:event|throttle)_reason_", "", path.rpartition("/")[2])
            active, refusal = _reading(FLAG, value) if value.text else (None, "")
            if refusal:
                refusals[REASONS.get(name, name)] = refusal
            else:
                is_active[REASONS.get(name, "")] = active or is_active.get(REASONS.get(name, ""))
    if not is_active:
        if refusals:
            unavailable["clock_event_reasons"] = next(iter(refusals.values()))
        return None
    unavailable.update({f"clock_event_reasons.{name}": word for name, word in refusals.items()})
    return tuple(name for name in dict.fromkeys(REASONS.values()) if is_active.get(name))


def _pending(values: Values, unavailable: dict[str, str]) -> bool | None:
    names = ("pending_page_blacklist", "pending", "pending_blacklist", "pending_retirement")
    printed = [values[path] for path in (f"retired_pages/{name}" for name in names) if path in values]
    if not printed and (section := values.get("retired_pages")):
        printed = [section]
    readings = [_reading(FLAG, value) for value in printed]
    answers = [flag for flag, refusal in readings if not refusal and flag is not None]
    if readings and not answers:
        unavailable["retired_pages_pending"] = printed[0].text
    return any(answers) if answers else None


def _processes(listed: list[Values], last: bool) -> tuple[GpuProcess, ...]:
    processes = []
    for values in listed:
        unavailable: dict[str, str] = {}
        named = _fields(GpuProcess, values, unavailable)
        if named["pid"] is not None:
            processes.append(GpuProcess(**named, unavailable=unavailable))
        # else the output is cut before its identity
        elif not last or values is not listed[-1] or {"type", "name", "process_name"} & set(values):
            raise unreadable(TOOL, next(iter(values.values())).line, "a process without its ID")
    return tuple(processes)


def _printed(values: Values, place: Place) -> Value | None:
    """Return the first path that holds a value; else a refusal of it, or of the section that it stands in."""
    there = [values[path] for path in place.paths if path in values]
    sections = (values[section] for section in place.sections if section in values)
    taken = (value for value in there if not refused(value.text))
    return next(taken, None) or next((value for value in (*there, *sections) if refused(value.text)), None)

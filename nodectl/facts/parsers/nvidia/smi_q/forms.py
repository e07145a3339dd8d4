"""The two forms of `nvidia-smi -q`, text and XML: which value stands where, before any is judged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pyexpat import ExpatError, ParserCreate, errors
from typing import NamedTuple

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.words import LostGpu, lost_gpu, no_output, warning
from nodectl.facts.parsers.text import Line, bus_id, unreadable


class Value(NamedTuple):
    """A value as printed, and its line."""

    text: str
    line: Line


Values = dict[str, Value]


@dataclass(slots=True)
class Block:
    """One GPU: values by path (`ecc_mode/current`); its lists are None where they are not in the output."""

    bus_id: str
    values: Values = field(default_factory=dict)
    processes: list[Values] | None = None
    mig_devices: list[Values] | None = None


@dataclass(slots=True)
class Log:
    """The whole output; `complete` is False where it ends before its end."""

    header: Values = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    lost: list[LostGpu] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


# Knows the indented form of `nvidia-smi -q`: which line belongs to which section.

_GPU = re.compile(r"GPU +([0-9a-fA-F]{4,8}(?::\S*)?)\s*")
_HEADER = {"timestamp", "driver_version", "cuda_version", "kmd_version", "cuda_umd_version", "attached_gpus"}
_HEADER_LINE = re.compile(r"(?:GPU [0-9a-fA-F]{4,8}:|Driver Version +:|Attached v?GPUs +:|=+NVSMI LOG=)")
# a last line that is one of these is no cut line
_SECTIONS = {
    *("mig_mode", "mig_device", "device_attributes", "shared", "driver_model", "platform_info", "inforom_version"),
    *("inforom_bbx_object_flush", "gpu_operation_mode", "gpu_virtualization_mode", "gpu_reset_status", "ibmnpu", "pci"),
    *("gpu_link_info", "pcie_generation", "link_width", "bridge_chip", "clocks_throttle_reasons", "utilization"),
    *("clocks_event_reasons", "clocks_event_reasons_counters", "fb_memory_usage", "bar1_memory_usage", "encoder_stats"),
    *("shared_fb_memory_usage", "shared_bar1_memory_usage", "shared_bar1_usage", "shared_bar1_memory"),
    *("conf_compute_protected_memory_usage", "fbc_stats", "dram_encryption_mode", "ecc_mode", "ecc_errors", "volatile"),
    *("aggregate", "single_bit", "double_bit", "aggregate_uncorrectable_sram_sources", "retired_pages", "temperature"),
    *("remapped_rows", "bank_remap_availability_histogram", "power_readings", "gpu_power_readings", "clocks"),
    *("gpu_memory_power_readings", "module_power_readings", "workload_power_profiles", "applications_clocks", "fabric"),
    *("default_applications_clocks", "deferred_clocks", "max_clocks", "max_customer_boost_clocks", "clock_policy"),
    *("voltage", "health", "processes", "capabilities", "supported_clocks"),
    *("gpu_ceiling_power_limit", "gpu_base_power"),
}
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_PREFIX_CHARS = 200
_MOST_KNOWN = 20_000


def read_text(lines: Sequence[Line]) -> Log:
    """Return the log's sections; ParseError where nothing of it is there, or the last line is cut."""
    return _Reader(lines).read()


class _Row(NamedTuple):
    """A line without what stands around it."""

    indent: int
    content: str
    key: str
    colon: str
    value: str


def _row(text: str) -> _Row:
    """Blank lines have no indent."""
    text = text.expandtabs(8)
    content = text.lstrip(" ")
    key, colon, value = content.partition(":")
    return _Row(len(text) - len(content) if content else 0, content, key, colon, value.strip())


class _Spot:
    """The place of a line: its indent, its path, and below what; and which lines are known to follow there."""

    __slots__ = ("above", "below", "indent", "next", "path")

    def __init__(self, above: _Spot | None, indent: int, path: str) -> None:
        self.above = above
        self.indent = indent
        self.path = path
        self.below: dict[tuple[int, str], _Spot] = {}
        self.next: dict[str, _Read] = {}


class _Read(NamedTuple):
    """A line that was read: of a value only where it stands and what it says is asked; a heading says nothing."""

    spot: _Spot
    path: str
    colon: str
    text: str
    is_value: bool
    is_heading: bool


class _Known:
    """All lines that were read so far, by where they stood: GPUs and hosts of one kind print the same."""

    def __init__(self) -> None:
        self.number = 0
        self.first = _Spot(None, 0, "")

    def start(self) -> _Spot:
        """Return the place where a GPU begins."""
        if self.number > _MOST_KNOWN:
            self.number, self.first = 0, _Spot(None, 0, "")
        return self.first

    def after(self, spot: _Spot, text: str, row: _Row) -> _Read:
        """Return a line that was not yet read after one there."""
        above = spot
        while above.above is not None and above.indent >= row.indent:
            above = above.above
        name = _name(row.key)
        path = f"{above.path}/{name}" if above.path else name
        there = above.below.setdefault((row.indent, name), _Spot(above, row.indent, path))
        is_plain = not path.startswith(("processes", "mig_device", "mig_mode/current"))
        is_value, is_heading = is_plain and bool(row.colon), is_plain and not row.colon
        reading = spot.next[text] = _Read(there, path, row.colon, row.value, is_value, is_heading)
        self.number += 1
        return reading


_known = _Known()

# as Value(text, line), and much faster: there are thousands of them a host
_value = partial(tuple.__new__, Value)


class _Reader:
    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.last = lines[-1] if lines else None
        self.log = Log()
        self.block: Block | None = None
        self.spot = _known.start()

    def read(self) -> Log:
        prefix = self.prefixed
        for line in self.lines:
            text = line.text.removeprefix(prefix) if prefix else line.text
            if (block := self.block) is not None and line is not self.last and (read := self.spot.next.get(text)):
                self.spot, path, _, value, is_value, is_heading = read
                if is_value:
                    block.values.setdefault(path, _value((value, line)))
                elif not is_heading:
                    _inner(block, read, line)
                continue
            row = _row(text)
            if row.indent:
                if self.block is not None:
                    if line is self.last:
                        _refuse_cut(row, line)
                    read = _known.after(self.spot, text, row)
                    self.spot = read.spot
                    _inner(self.block, read, line)
            elif row.content:
                if self.log.blocks and "NVSMI LOG=" in row.content:
                    break  # the next one of `-l`
                self._top(row.content, line)
        if not self.log.blocks and not ("attached_gpus" in self.log.header and self._none_expected()):
            raise no_output("nvidia-smi-q", self.lines, "'GPU <bus id>'")
        return self.log

    @property
    def prefixed(self) -> str:
        """Return what stands before every line: an indent, or the host that a parallel shell names."""
        for line in self.lines:
            if match := _HEADER_LINE.search(line.text[:_PREFIX_CHARS]):
                return line.text[: match.start()]
        return ""

    def _none_expected(self) -> bool:
        attached = self.log.header["attached_gpus"].text
        return attached == "0" or (bool(self.log.lost) and attached == str(len(self.log.lost)))

    def _top(self, content: str, line: Line) -> None:
        if content.startswith("GPU ") and (match := _GPU.fullmatch(content)):
            address = bus_id(match[1])
            if address is None:
                raise unreadable("nvidia-smi-q", line, "no PCI address")
            self.block, self.spot = Block(address), _known.start()
            self.log.blocks.append(self.block)
        elif lost := lost_gpu(content):
            self.log.lost.append(lost)
        elif warned := warning(content):
            self.log.warnings.append(warned)
        else:
            key, colon, value = content.partition(":")
            name = _name(key)
            if colon and name in _HEADER and not self.log.blocks:
                self.log.header.setdefault(name, Value(value.strip(), line))


def _inner(block: Block, read: _Read, line: Line) -> None:
    path, colon, value = read.path, read.colon, _value((read.text, line))
    if path.startswith("processes"):
        _process(block, path, colon, value)
    elif path.startswith("mig_device"):
        _mig_device(block, path, colon, value)
    elif colon:
        block.values.setdefault(path, value)
        if path == "mig_mode/current" and block.mig_devices is None:
            block.mig_devices = []


def _refuse_cut(row: _Row, line: Line) -> None:
    if not row.colon and _name(row.key) not in _SECTIONS:
        raise unreadable("nvidia-smi-q", line, "the line is cut")
    if row.colon and not row.value:
        raise unreadable("nvidia-smi-q", line, "the value is cut")


def _process(block: Block, path: str, colon: str, value: Value) -> None:
    if path == "processes":
        if value.text == "None":
            block.processes = []
        elif colon:
            block.values["processes"] = value
        return
    name = path.rpartition("/")[2]
    if block.processes is None:
        block.processes = []
    _add(block.processes, name, value)


def _mig_device(block: Block, path: str, colon: str, value: Value) -> None:
    if block.mig_devices is None:
        block.mig_devices = []
    if path in ("mig_device", "mig_devices"):
        if not colon:
            block.mig_devices.append({})
    elif block.mig_devices:
        block.mig_devices[-1].setdefault(path.partition("/")[2], value)


def _add(items: list[Values], name: str, value: Value) -> None:
    # a key that stands there already begins the next one
    if not items or name in items[-1]:
        items.append({})
    items[-1][name] = value


def _name(key: str) -> str:
    return _NOT_WORD.sub("_", key[:_PREFIX_CHARS].lower()).strip("_")


# Knows the XML form of `nvidia-smi -q -x`: the same values under NVIDIA's element names.
# Only the element itself is read, never the document type before it: what declares no entity cannot grow.

_LISTS = {"mig_devices/mig_device", "processes/process_info"}
_IGNORED = {"supported_clocks", "accounted_processes"}
_BARE_AMPERSAND = re.compile(r"&(?!#?\w{1,8};)")
_MAX_DEPTH = 32


def read_xml(lines: Sequence[Line]) -> Log:
    """Return the document's values; one that ends between two elements is read as far as it goes."""
    first = next(index for index, line in enumerate(lines) if "<nvidia_smi_log" in line.text)
    last = next((index for index, line in enumerate(lines) if "</nvidia_smi_log" in line.text), len(lines) - 1)
    outside = [*lines[:first], *lines[last + 1 :]]
    inside, prefix = lines[first : last + 1], lines[first].text.partition("<nvidia_smi_log")[0]
    body = [line.text.removeprefix(prefix) if prefix else line.text for line in inside]
    try:
        reader = _XmlReader(inside).read("\n".join(body))
    except ParseError:
        # a log line between the elements, or a process whose name is not escaped, breaks the form
        written = [text if text.lstrip().startswith("<") or text.strip() == "None" else "" for text in body]
        if written == body and not any("&" in text for text in body):
            raise
        reader = _XmlReader(inside).read(_BARE_AMPERSAND.sub("&amp;", "\n".join(written)))
        outside += [line for line, text in zip(inside, written, strict=True) if not text]
    reader.log.lost = [lost for line in outside if (lost := lost_gpu(line.text))]
    reader.log.warnings = [warned for line in outside if (warned := warning(line.text))]
    return reader.log


class _XmlReader:
    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.log = Log()
        self.block: Block | None = None
        self.item: Values | None = None
        self.open: list[str] = []
        self.text: list[str] = []
        self.leaf = False
        self.expat = ParserCreate("utf-8")
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self.expat.CharacterDataHandler = self.text.append

    def read(self, text: str) -> _XmlReader:
        try:
            self.expat.Parse(text.encode("utf-8", errors="replace"), True)
        except ExpatError as error:
            cut = errors.messages[error.code] == errors.XML_ERROR_NO_ELEMENTS
            if not cut or text.rpartition(">")[2].strip():
                why = "the output is cut here" if cut else errors.messages[error.code]
                raise unreadable("nvidia-smi-q", self._line(error.lineno), why) from error
        return self

    def _line(self, number: int) -> Line:
        return self.lines[min(number, len(self.lines)) - 1]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.open.append(name)
        self.text.clear()
        self.leaf = True
        if len(self.open) > _MAX_DEPTH:
            raise unreadable("nvidia-smi-q", self._line(self.expat.CurrentLineNumber), "nested too deep")
        if self.open == ["nvidia_smi_log", "gpu"]:
            address = bus_id(attributes.get("id", ""))
            if address is None:
                raise unreadable("nvidia-smi-q", self._line(self.expat.CurrentLineNumber), "no PCI address")
            self.block = Block(address)
            self.log.blocks.append(self.block)
        elif self.block is not None and len(self.open) == 4 and "/".join(self.open[2:]) in _LISTS:
            self.item = {}
            self._list(self.block, self.open[2]).append(self.item)

    def _list(self, block: Block, section: str) -> list[Values]:
        if section == "processes":
            block.processes = block.processes if block.processes is not None else []
            return block.processes
        block.mig_devices = block.mig_devices if block.mig_devices is not None else []
        return block.mig_devices

    def _end(self, name: str) -> None:
        path = self.open[2:]
        if self.leaf:
            value = Value("".join(self.text).strip(), self._line(self.expat.CurrentLineNumber))
            self._value(path, value)
        self.text.clear()
        self.leaf = False
        self.open.pop()
        if len(path) == 2 and "/".join(path) in _LISTS:
            self.item = None
        elif not path and name == "gpu":
            self.block = None

    def _value(self, path: list[str], value: Value) -> None:
        if self.block is None:
            if len(self.open) == 2:
                self.log.header.setdefault(self.open[1], value)
        elif self.item is not None:
            self.item.setdefault("/".join(path[2:]), value)
        elif path in (["processes"], ["mig_devices"]) and (not value.text or "None" in value.text.split("\n")):
            self._list(self.block, path[0])
        elif path and path[0] not in _IGNORED:
            self.block.values.setdefault("/".join(path), value)

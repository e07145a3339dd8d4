"""Knows the indented form of `nvidia-smi -q`: which line belongs to which section."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from nodectl.parsers.nvidia.smi_q.log import Block, Log, Value, Values
from nodectl.parsers.nvidia.words import lost_gpu, no_output, warning
from nodectl.parsers.text import Line, bus_id, unreadable

_GPU = re.compile(r"GPU +([0-9a-fA-F]{4,8}(?::\S*)?)\s*")
_HEADER = {"timestamp", "driver_version", "cuda_version", "kmd_version", "cuda_umd_version", "attached_gpus"}
_HEADER_LINE = re.compile(r"(?:GPU [0-9a-fA-F]{4,8}:|Driver Version +:|Attached GPUs +:|=+NVSMI LOG=)")
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
# a line of a GPU's first level, and what is indented below it
_SECTION_BEGINS = re.compile(r"\n    (?=\S)")
# few sections are longer; nor is a header as long as that one
_LONGEST_KNOWN = 4096
_NO_LINE = Line(0, "")
_PREFIX_CHARS = 200
_MOST_KNOWN = 20_000


def read_known(text: str) -> Log | None:
    """The log of a text that is `plain`, section by section: GPUs and hosts of one kind print most of them alike.

    None where the text is not made of sections alone. Its values do not know their lines: who finds one of them wrong
    reads the text again by `read_text`.
    """
    head, *printed = text.split("\nGPU ")
    if not printed or not text.endswith("\n") or "\t" in text or "<std" in text or text.count("NVSMI LOG=") > 1:
        return None
    if len(head) > _LONGEST_KNOWN:
        return None
    reader = _Reader([Line(number, row) for number, row in enumerate(head.split("\n"), start=1)])
    reader.add_header()
    blocks = [_block(each) for each in printed]
    if reader.log.blocks or reader.prefixed or None in blocks:
        return None
    reader.log.blocks = [block for block in blocks if block is not None]
    return reader.log


def _block(text: str) -> Block | None:
    """A GPU of its sections; None where one of them cannot be read by itself, or comes twice."""
    head, *sections = _SECTION_BEGINS.split(text)
    match = _GPU.fullmatch(f"GPU {head}")
    address = bus_id(match[1]) if match else None
    if address is None:
        return None
    block, number = Block(address), 0
    others: list[_Read] = []
    values = block.values
    for section in sections:
        reads = _known_section(section) if len(section) < _LONGEST_KNOWN else None
        if reads is None:
            return None
        values.update(reads[0])
        number += len(reads[0])
        others += reads[1]
    if len(values) < number:
        return None
    for read in others:
        _inner(block, read, _NO_LINE)
    return block


def _section(text: str) -> tuple[Values, tuple[_Read, ...]] | None:
    """The values of a section, and its lines of processes and MIG devices; None where a line is not below its first."""
    first, *below = text.split("\n")
    known, rows = _Known(), [_row(f"    {first}"), *filter(_is_written, map(_row, below))]
    if any(row.indent <= rows[0].indent for row in rows[1:]):
        return None
    reads: list[_Read] = []
    for row in rows:
        reads.append(known.after(reads[-1].spot if reads else known.first, row.content, row))
    values: Values = {}
    for read in reads:
        if read.is_value:
            values.setdefault(read.path, Value(read.text, _NO_LINE))
    return values, tuple(read for read in reads if not read.is_value and not read.is_heading)


_known_section = lru_cache(maxsize=4096)(_section)


def _is_written(row: _Row) -> bool:
    return bool(row.content)


def read_text(lines: Sequence[Line]) -> Log:
    """The log's sections; ParseError where nothing of it is there, or the last line is cut."""
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
    """Where a line stands: its indent, its path, and below what; and which lines are known to follow there."""

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
        """Where a GPU begins."""
        if self.number > _MOST_KNOWN:
            self.number, self.first = 0, _Spot(None, 0, "")
        return self.first

    def after(self, spot: _Spot, text: str, row: _Row) -> _Read:
        """A line that was not yet read after one there."""
        above = spot
        while above.above is not None and above.indent >= row.indent:
            above = above.above
        name = _name(row.key)
        path = f"{above.path}/{name}" if above.path else name
        there = above.below.setdefault((row.indent, name), _Spot(above, row.indent, path))
        is_plain = not path.startswith(("processes", "mig_device", "mig_mode/current"))
        is_value, is_heading = is_plain and bool(row.colon), is_plain and not row.colon
        found = spot.next[text] = _Read(there, path, row.colon, row.value, is_value, is_heading)
        self.number += 1
        return found


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

    def add_header(self) -> None:
        """Read lines of which none belongs to a GPU."""
        for line in self.lines:
            row = _row(line.text)
            if row.content and not row.indent:
                self._top(row.content, line)

    @property
    def prefixed(self) -> str:
        """What stands before every line: an indent, or the host that a parallel shell names."""
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

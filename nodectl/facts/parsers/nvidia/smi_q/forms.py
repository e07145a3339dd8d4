"""The two forms of `nvidia-smi -q`, text and XML: which value stands where, before any is judged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pyexpat import ExpatError, ParserCreate, errors
from typing import NamedTuple

from nodectl.facts.parsers.nvidia.words import LostGpu, lost_gpu, no_output, warning
from nodectl.facts.parsers.text import Line, bus_id, unreadable

TOOL = "nvidia-smi-q"


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


@dataclass(slots=True)
class Log:
    """The whole output."""

    header: Values = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    lost: list[LostGpu] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


_GPU = re.compile(r"GPU +(\S+)\s*")
_HEADER = {"timestamp", "driver_version", "cuda_version", "kmd_version", "cuda_umd_version", "attached_gpus"}
_HEADER_LINE = re.compile(r"(?:GPU [0-9a-fA-F]{4,8}:|Driver Version +:|Attached v?GPUs +:|=+NVSMI LOG=)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}")
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_PREFIX_CHARS = 200


def read_text(lines: Sequence[Line]) -> Log:
    """Return the values of the indented form; ParseError if there are none, or the last line is cut."""
    log, above, block = Log(), [(0, "")], None
    prefix = _prefix(lines)
    for line in lines:
        text = line.text.removeprefix(prefix).expandtabs(8)
        content = text.lstrip(" ")
        indent, (key, colon, value) = len(text) - len(content), content.partition(":")
        if not content:
            continue
        if not indent:
            if log.blocks and "NVSMI LOG=" in content:
                _refuse_others(lines, line)  # the next one of `-l` has the same GPUs
                break
            if _top(log, content, line):
                block, above = log.blocks[-1], [(0, "")]
        elif block is not None:
            while above[-1][0] >= indent:
                above.pop()
            path = f"{above[-1][1]}/{_name(key)}".lstrip("/")
            above.append((indent, path))
            if line is lines[-1] and not (colon and value.strip()):  # no newline ends it
                raise unreadable(TOOL, line, "the value is cut" if colon else "the line is cut")
            _place(block, path, colon, Value(value.strip(), line))
    if not log.blocks and not _none_expected(log):
        raise no_output(TOOL, lines, "'GPU <bus id>'")
    return log


def _refuse_others(lines: Sequence[Line], second: Line) -> None:
    """Raise ParseError if the report that begins at the line `second` has other GPUs than the one before."""
    first, others = set[str](), set[str]()
    for line in lines:
        (first if line.number < second.number else others).update(_UUID.findall(line.text))
    if others - first:
        raise unreadable(TOOL, second, "the report of another machine begins here: give one report")


def _prefix(lines: Sequence[Line]) -> str:
    """Return what stands before every line: an indent, or the host that a parallel shell names."""
    heads = ((line.text, _HEADER_LINE.search(line.text[:_PREFIX_CHARS])) for line in lines)
    return next((text[: match.start()] for text, match in heads if match), "")


def _none_expected(log: Log) -> bool:
    attached = log.header.get("attached_gpus")
    return attached is not None and attached.text in ("0", str(len(log.lost) or 0))


def _top(log: Log, content: str, line: Line) -> bool:
    """Keep what a line without an indent says; return whether a GPU begins."""
    if match := _GPU.fullmatch(content):
        log.blocks.append(Block(_address(match[1], line)))
        return True
    key, colon, value = content.partition(":")
    if lost := lost_gpu(content):
        log.lost.append(lost)
    elif warned := warning(content):
        log.warnings.append(warned)
    elif colon and _name(key) in _HEADER and not log.blocks:
        log.header.setdefault(_name(key), Value(value.strip(), line))
    return False


def _address(text: str, line: Line) -> str:
    address = bus_id(text)
    if address is None:
        raise unreadable(TOOL, line, "no PCI address")
    return address


def _place(block: Block, path: str, colon: str, value: Value) -> None:
    section, _, rest = path.partition("/")
    if section == "processes":
        if not rest and value.text == "None":
            block.processes = []
        elif not rest and colon:
            block.values[path] = value
        elif rest:
            block.processes = block.processes or []
            name = rest.rpartition("/")[2]
            if not block.processes or name in block.processes[-1]:  # its first key begins the next process
                block.processes.append({})
            block.processes[-1][name] = value
    elif colon and section not in ("mig_device", "mig_devices"):
        block.values.setdefault(path, value)


@lru_cache(maxsize=4096)
def _name(key: str) -> str:
    return _NOT_WORD.sub("_", key[:_PREFIX_CHARS].lower()).strip("_")


_BARE_AMPERSAND = re.compile(r"&(?!#?\w{1,8};)")
_IGNORED = {"supported_clocks", "accounted_processes", "mig_devices"}
_MAX_DEPTH = 32


def read_xml(lines: Sequence[Line]) -> Log:
    """Return the values of the XML form; one that ends between two elements is read as far as it goes.

    Only the element itself is read, never the document type before it: what declares no entity cannot grow. A log line
    between the elements and a process name that is not escaped are passed over.
    """
    first = next(index for index, line in enumerate(lines) if "<nvidia_smi_log" in line.text)
    last = next((index for index, line in enumerate(lines) if "</nvidia_smi_log" in line.text), len(lines) - 1)
    if second := next((line for line in lines[last + 1 :] if "<nvidia_smi_log" in line.text), None):
        _refuse_others(lines, second)
    prefix = lines[first].text.partition("<nvidia_smi_log")[0]
    inside = [(line, line.text.removeprefix(prefix)) for line in lines[first : last + 1]]
    kept = [text if text.lstrip().startswith("<") or text.strip() == "None" else "" for _, text in inside]
    others = [*lines[:first], *(line for (line, _), text in zip(inside, kept, strict=True) if not text)]
    others += lines[last + 1 :]
    reader = _XmlReader([line for line, _ in inside])
    reader.log.lost = [lost for line in others if (lost := lost_gpu(line.text))]
    reader.log.warnings = [warned for line in others if (warned := warning(line.text))]
    return reader.read(_BARE_AMPERSAND.sub("&amp;", "\n".join(kept)))


class _XmlReader:
    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.log = Log()
        self.open: list[str] = []
        self.text: list[str] = []
        self.is_leaf = False
        self.expat = ParserCreate("utf-8")
        self.expat.buffer_text = True
        self.expat.StartElementHandler = self._start
        self.expat.EndElementHandler = self._end
        self.expat.CharacterDataHandler = self.text.append

    def read(self, text: str) -> Log:
        try:
            self.expat.Parse(text.encode("utf-8", errors="replace"), True)
        except ExpatError as error:
            is_cut = errors.messages[error.code] == errors.XML_ERROR_NO_ELEMENTS
            if not is_cut or text.rpartition(">")[2].strip():
                why = "the output is cut here" if is_cut else errors.messages[error.code]
                raise unreadable(TOOL, self._line(error.lineno), why) from error
        return self.log

    def _line(self, number: int) -> Line:
        return self.lines[min(number, len(self.lines)) - 1]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.open.append(name)
        self.text.clear()
        self.is_leaf = True
        line = self._line(self.expat.CurrentLineNumber)
        if len(self.open) > _MAX_DEPTH:
            raise unreadable(TOOL, line, "nested too deep")
        if self.open == ["nvidia_smi_log", "gpu"]:
            self.log.blocks.append(Block(_address(attributes.get("id", ""), line)))
        elif self.open[1:] == ["gpu", "processes", "process_info"]:
            self._processes().append({})

    def _processes(self) -> list[Values]:
        """Return the processes of the GPU that is open; it has a list of them from now on."""
        block = self.log.blocks[-1]
        block.processes = block.processes or []
        return block.processes

    def _end(self, name: str) -> None:
        if self.is_leaf:
            self._place(Value("".join(self.text).strip(), self._line(self.expat.CurrentLineNumber)))
        self.text.clear()
        self.is_leaf = False
        self.open.pop()

    def _place(self, value: Value) -> None:
        top, *path = self.open[1:] or [""]
        if top != "gpu":
            if not path:
                self.log.header.setdefault(top, value)
        elif path[:2] == ["processes", "process_info"]:
            self._processes()[-1].setdefault("/".join(path[2:]), value)
        elif path == ["processes"] and (not value.text or "None" in value.text.split("\n")):
            self._processes()
        elif path and path[0] not in _IGNORED:
            self.log.blocks[-1].values.setdefault("/".join(path), value)

"""Knows the XML form of `nvidia-smi -q -x`: the same values under NVIDIA's element names.

Only the element itself is read, never the document type before it: what declares no entity cannot grow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pyexpat import ExpatError, ParserCreate, errors

from nodectl.errors import ParseError
from nodectl.parsers.nvidia.smi_q.log import Block, Log, Value, Values
from nodectl.parsers.nvidia.words import lost_gpu, warning
from nodectl.parsers.text import Line, bus_id, unreadable

_LISTS = {"mig_devices/mig_device", "processes/process_info"}
_IGNORED = {"supported_clocks", "accounted_processes"}
_BARE_AMPERSAND = re.compile(r"&(?!#?\w{1,8};)")
_MAX_DEPTH = 32


def read_xml(lines: Sequence[Line]) -> Log:
    """The document's values; one that ends between two elements is read as far as it goes."""
    first = next(index for index, line in enumerate(lines) if "<nvidia_smi_log" in line.text)
    last = next((index for index, line in enumerate(lines) if "</nvidia_smi_log" in line.text), len(lines) - 1)
    outside = [*lines[:first], *lines[last + 1 :]]
    inside, prefix = lines[first : last + 1], lines[first].text.partition("<nvidia_smi_log")[0]
    body = [line.text.removeprefix(prefix) if prefix else line.text for line in inside]
    try:
        reader = _Reader(inside).read("\n".join(body))
    except ParseError:
        # a log line between the elements, or a process whose name is not escaped, breaks the form
        written = [text if text.lstrip().startswith("<") or text.strip() == "None" else "" for text in body]
        if written == body and not any("&" in text for text in body):
            raise
        reader = _Reader(inside).read(_BARE_AMPERSAND.sub("&amp;", "\n".join(written)))
        outside += [line for line, text in zip(inside, written, strict=True) if not text]
    reader.log.lost = [lost for line in outside if (lost := lost_gpu(line.text))]
    reader.log.warnings = [warned for line in outside if (warned := warning(line.text))]
    return reader.log


class _Reader:
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

    def read(self, text: str) -> _Reader:
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

"""Elastic's summary of failed workers, between its lines of `===` and `---`; one for each agent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nodectl.parsers.text import Line, unreadable

_ROOT = "Root Cause (first observed failure):"
_BORDER = re.compile(r"(?<![=-])[=-]{20,}\s*$")
_ENTRY = re.compile(r"(?:^|[\s:\])])\[\d{1,9}\]:\s*$")
_FIELD = re.compile(r"(?:^|[\s\]:>)])(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,8}: ?(?P<value>.*)$")
_RANK = re.compile(r"(?P<rank>\d{1,9}) \(local_rank: (?P<local_rank>\d{1,9})\)")
_EXIT = re.compile(r"(?P<exitcode>-?\d{1,9}) \(pid: (?P<pid>\d{1,10})\)(?: ?\(SIG[A-Z0-9+-]{2,12}\))?")
_MAX_TRACEBACK_LINES = 200


@dataclass(slots=True)
class Failure:
    """One worker, as printed; numbers apart."""

    is_root: bool
    values: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


class SummaryReader:
    """Reads line by line; what is outside a summary is passed over."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._found: list[Failure] = []
        self._section: bool | None = None  # None: outside; else whether it is the root cause's
        self._traceback: list[str] | None = None

    def read(self, line: Line) -> None:
        """One more line of the output."""
        text = line.text.rstrip()
        if text.endswith("Failures:"):
            self._enter(is_root=False)
        elif text.endswith(_ROOT):
            self._enter(is_root=True)
        elif self._section is None:
            return
        elif _BORDER.search(text):
            self._leave()
        elif _ENTRY.search(text):
            self._end_traceback()
            self._found.append(Failure(is_root=self._section))
        elif self._found:
            self._field(line, text)

    def failures(self) -> list[Failure]:
        """All, each worker once, in the order in which they were printed."""
        self._end_traceback()
        unique: dict[tuple[object, ...], Failure] = {}
        for failure in self._found:
            key = (*sorted(failure.values.items()), *sorted(failure.numbers.items()))
            known = unique.setdefault(key, failure)
            known.is_root = known.is_root or failure.is_root
        return [failure for failure in unique.values() if failure.values or failure.numbers]

    def _enter(self, *, is_root: bool) -> None:
        self._end_traceback()
        self._section = is_root

    def _leave(self) -> None:
        self._end_traceback()
        self._section = None

    def _field(self, line: Line, text: str) -> None:
        match = _FIELD.search(text)
        if match is None or self._traceback is not None:
            if self._traceback is not None and len(self._traceback) < _MAX_TRACEBACK_LINES:
                self._traceback.append(text)
            return
        key, value = match["key"], match["value"].strip()
        if key in ("rank", "exitcode"):
            numbers = (_RANK if key == "rank" else _EXIT).fullmatch(value)
            if numbers is None:
                raise unreadable(self._tool, line, f"a {key} that is cut")
            self._found[-1].numbers.update({name: int(each) for name, each in numbers.groupdict().items()})
        elif key == "traceback":
            self._traceback = [value]
        elif not value:
            raise unreadable(self._tool, line, f"a {key} without its value")
        else:
            self._found[-1].values[key] = value

    def _end_traceback(self) -> None:
        if self._traceback is not None and self._found:
            self._found[-1].values["traceback"] = "\n".join(self._traceback).strip()
        self._traceback = None

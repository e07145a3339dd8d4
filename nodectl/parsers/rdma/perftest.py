"""Reads what perftest's programs (`ib_write_bw`, `ib_send_lat`, …) print, as client or server, and `--out_json`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.parsers.rdma.labelled import rows_of
from nodectl.parsers.rdma.perftest_errors import PerftestError, find_error, is_error
from nodectl.parsers.rdma.perftest_json import is_perftest_json, json_rows
from nodectl.parsers.rdma.perftest_rows import Row, Table
from nodectl.parsers.text import Line, plain, unreadable

_TOOL = "perftest"
_BANNER = re.compile(r"(RDMA_Write|RDMA_Read|Send|Atomic)([\w -]{0,60}?)[ _](BW|Latency)[ _]Test\b")
_PROGRAM = re.compile(r"\bib_(?:write|read|send|atomic)_(?:bw|lat)\b")
_WAITS = re.compile(r"Waiting for client (?:rdma_cm QP )?to connect")
# what `timeout` and a shell leave behind
_DEADLINE = re.compile(r"exit status: 124\b|^\s*Terminated\b")
_INFO = re.compile(
    r"\b(Device|Transport[ _]type|Link[ _]type|Mtu|Number[ _]of[ _]qps|Connection[ _]type|G[iI][dD][ _]index)\"?\s*:"
    r"\s*\"?([\w./-]+)"
)
_VERBS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"}


@dataclass(frozen=True, slots=True)
class Perftest:
    """One run; None for what was not printed. `rows` may be empty where the output was cut or the run failed."""

    test: str | None
    device: str | None
    transport: str | None
    link_type: str | None
    mtu_bytes: int | None
    qps: int | None
    connection: str | None
    gid_index: int | None
    bidirectional: bool
    rows: tuple[Row, ...]
    error: PerftestError | None


def parse_perftest(text: str) -> Perftest:
    """ParseError for a row that is cut or garbled, and for text that is no run of perftest's."""
    output = _Output(list(rows_of(text, _TOOL)))
    rows = tuple(output.table.rows)
    if not rows and is_perftest_json(text := plain(text)):
        rows = json_rows(text)
    error = find_error(output.complaints, has_figures=bool(rows)) or output.silent_error(rows)
    if not (rows or error or output.has_begun):
        raise output.no_run()
    # a server and its client in one output show the same figures twice
    is_twice = len(output.banners) > 1
    return Perftest(
        test=output.test(),
        device=output.word("device"),
        transport=output.word("transport type"),
        link_type=output.word("link type"),
        mtu_bytes=output.count("mtu"),
        qps=output.count("number of qps"),
        connection=output.word("connection type"),
        gid_index=output.count("gid index"),
        bidirectional=any("Bidirectional" in banner[2] for banner in output.banners),
        rows=tuple(dict.fromkeys(rows)) if is_twice else rows,
        error=error,
    )


class _Output:
    def __init__(self, lines: list[Line]) -> None:
        self.table = Table()
        self.banners: list[re.Match[str]] = []
        self.complaints: list[Line] = []
        self.has_begun = False
        self._lines = lines
        self._info: dict[str, tuple[Line, str]] = {}
        for line in lines:
            rest = self.table.read(line)
            if rest:
                self._read(Line(line.number, rest))

    def _read(self, line: Line) -> None:
        banner = _BANNER.search(line.text)
        if banner:
            self.banners.append(banner)
        self.has_begun = self.has_begun or banner is not None or _WAITS.search(line.text) is not None
        for name, value in _INFO.findall(line.text):
            self._info.setdefault(name.replace("_", " ").lower(), (line, value))
        if is_error(line.text):
            self.complaints.append(line)

    def test(self) -> str | None:
        if self.banners:
            verb, _, kind = self.banners[0].groups()
            return f"ib_{_VERBS[verb]}_{'bw' if kind == 'BW' else 'lat'}"
        named = (_PROGRAM.search(line.text) for line in self._lines)
        return next((match[0] for match in named if match), None)

    def word(self, name: str) -> str | None:
        return self._info[name][1] if name in self._info else None

    def count(self, name: str) -> int | None:
        if name not in self._info:
            return None
        line, value = self._info[name]
        # before version 4 the MTU is `2048B`, since then `2048[B]`
        if not re.fullmatch(r"\d{1,9}B?", value):
            raise unreadable(_TOOL, line, f"{name} {value!r} is no number")
        return int(value.removesuffix("B"))

    def silent_error(self, rows: tuple[Row, ...]) -> PerftestError | None:
        """A link cut in the middle of a run shows as zero iterations only, a deadline as no output at all."""
        if any(row.iterations == 0 for row in rows):
            return PerftestError("peer_lost", self.table.idle or "0 iterations")
        deadline = next((line for line in self._lines if _DEADLINE.search(line.text)), None)
        if deadline and not rows and self.test():
            return PerftestError("timeout", deadline.text.strip())
        return None

    def no_run(self) -> ParseError:
        first = next((line for line in self._lines if line.text.strip()), Line(1, "one overlong line"))
        if any(line.text.strip().startswith("Usage:") for line in self._lines):
            return unreadable(_TOOL, first, "the program's help, not a run")
        if any(re.fullmatch(r"\s*\d+\.\d+\s*", line.text) for line in self._lines):
            return unreadable(_TOOL, first, "a figure without its size and unit: run without --output")
        return unreadable(_TOOL, first, "no run of perftest")

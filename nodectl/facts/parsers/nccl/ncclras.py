"""Reads `ncclras -v` (NCCL 2.24 and later): which communicators hang, and which processes are gone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.words import is_noise
from nodectl.facts.parsers.text import Line, foreign, lines_of, readable, unreadable, untagged

TOOL = "ncclras"


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """One communicator; `id` is None if the text names only those with a problem."""

    id: str | None
    ranks: int
    missing: int | None
    status: str


@dataclass(frozen=True, slots=True)
class RasProcess:
    """A process that does not answer; `device` is its first GPU."""

    host: str | None
    pid: int | None
    device: int | None


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank, and where it runs as far as NCCL knows."""

    rank: int
    host: str | None
    device: int | None
    communicator: str | None


@dataclass(frozen=True, slots=True)
class NcclRas:
    """`dead` are given up by NCCL, `unresponsive` not yet; `outliers` are the fewer ranks of a mismatch."""

    communicators: tuple[RasCommunicator, ...]
    dead: tuple[RasProcess, ...]
    unresponsive: tuple[RasProcess, ...]
    missing_ranks: tuple[RasRank, ...]
    outliers: tuple[RasRank, ...]


def parse_ncclras(text: str) -> NcclRas:
    """Read the output; raise ParseError without a table or a section of errors, and for a row that is cut."""
    lines = lines_of(text, TOOL)
    _require_answer(lines)
    answer = _Answer()
    for line in untagged(lines):
        answer.read(line)
    if not (answer.has_table or answer.has_findings):
        raise foreign(TOOL, lines, "no table of communicators")
    return answer.result()


def _require_answer(lines: list[Line]) -> None:
    for line in readable(lines):
        text = line.text.strip()
        if text.startswith(("Connecting to", "Failed to connect", "ncclras:", "Connection refused")) or (
            "command not found" in text[:400]
        ):
            raise ParseError(f"{TOOL}: it got no answer: {text[:200]}")
        if text.startswith(("Job summary", "Group ", "Communicators", "Errors", "Warnings")):
            return


_GROUP = re.compile(
    r"\s*(?P<group>\d{1,6})\s+(?P<comms>\d{1,6})\s+\d{1,9}\s+\d{1,9}(?:-\d{1,9})?\s+(?P<ranks>\d{1,9})\s+(?P<seen>\d{1,9})\s+"
    r"[A-Z]{2,16}\s+(?P<errors>[A-Z]{2,16}(?:,[A-Z]{2,16}){0,4})\s*"
)
_NAMED = re.compile(r"#(?P<group>\d{1,6})-(?P<index>\d{1,6}) \((?P<id>[0-9a-fA-F]{1,32})\) (?P<what>[A-Z]{2,16})\s*")
_PROCESS = re.compile(
    r"\s+Process (?P<pid>\d{1,10}) on node (?P<host>\S{1,255}) managing GPUs? "
    r"(?P<device>\d{1,4})(?P<more>[\d, ()A-Za-z-]{0,200})"
)
_RANK = re.compile(
    r"\s+Rank (?P<rank>\d{1,9})(?: .{1,160}?)? -- "
    r"(?:GPU (?P<device>\d{1,4})(?: \([^)]{1,40}\))? managed by process \d{1,10} "
    r"on node (?P<host>\S{1,255})|\[process information not found\])\s*"
)
_STATUS_ONLY = re.compile(r"\s+Rank \d{1,9} has status [A-Z]{2,16}")
_MISSING_COUNT = re.compile(r"\s+Missing communicator data from (?P<count>\d{1,9}) ranks?\s*")
_MISSING_RANKS = re.compile(r"\s+The missing ranks?: (?P<ranks>\d{1,9}(?:,\d{1,9}){0,100000})\s*")
_LIMIT = 100_000


class _Answer:
    def __init__(self) -> None:
        self.has_table = False
        self.has_findings = False
        self.communicators: dict[tuple[int, int], RasCommunicator] = {}
        self.named: dict[tuple[int, int], str] = {}
        self.section = ""
        self.current: tuple[int, int] | None = None
        self.dead: list[RasProcess] = []
        self.unresponsive: list[RasProcess] = []
        self.sole: list[RasProcess] = []  # processes of one GPU, whose rank is then certain
        self.missing: list[RasRank] = []
        self.outliers: list[RasRank] = []

    def read(self, line: Line) -> None:
        text = line.text.rstrip()
        if text.startswith("Group ") and "Status" in text:
            self.has_table, self.section = True, "table"
        elif self.section == "table" and text.lstrip()[:1].isdigit() and not is_noise(text):
            self._group(line)
        elif text in ("Errors", "Warnings", "DEAD", "INCOMPLETE", "TIMEOUT"):
            self.section, self.current = text, None
        elif text.startswith("#"):
            self._named(line)
        elif text.startswith(" "):
            self._detail(line)

    def _group(self, line: Line) -> None:
        match = _GROUP.fullmatch(line.text)
        if match is None or int(match["comms"]) + len(self.communicators) > _LIMIT:
            raise unreadable(TOOL, line, "a group of communicators that is cut, or of more than a job can have")
        errors = match["errors"].split(",")
        ranks, comms = int(match["ranks"]), int(match["comms"])
        unseen = max(ranks - int(match["seen"]), 0) if comms == 1 else None
        # data that is missing hides what else is wrong
        status = next((word for word in ("INCOMPLETE", "ERROR", "MISMATCH") if word in errors), "OK")
        communicator = RasCommunicator(None, ranks, unseen if "INCOMPLETE" in errors else 0, status)
        self.communicators |= {(int(match["group"]), index): communicator for index in range(comms)}

    def _named(self, line: Line) -> None:
        match = _NAMED.fullmatch(line.text.rstrip())
        key = (int(match["group"]), int(match["index"])) if match else None
        if match is None or key is None or (self.has_table and key not in self.communicators):
            raise unreadable(TOOL, line, "a communicator that is cut, or not in the table")
        self.section, self.current, self.has_findings = match["what"], key, True
        self.named[key] = match["id"]
        if key in self.communicators:
            self.communicators[key] = replace(self.communicators[key], id=match["id"])

    def _detail(self, line: Line) -> None:
        text = line.text.rstrip()
        if process := _PROCESS.fullmatch(text):
            silent = RasProcess(process["host"], int(process["pid"]), int(process["device"]))
            (self.dead if self.section == "DEAD" else self.unresponsive).append(silent)
            self.has_findings = self.has_findings or bool(self.section)
            if not process["more"]:
                self.sole.append(silent)
        elif rank := _RANK.fullmatch(text):
            device = int(rank["device"]) if rank["device"] else None
            ranks_of_kind = self.missing if self.section == "INCOMPLETE" else self.outliers
            ranks_of_kind.append(RasRank(int(rank["rank"]), rank["host"], device, self._id()))
        elif self.current in self.communicators and (count := _MISSING_COUNT.fullmatch(text)):
            communicator = self.communicators[self.current]
            self.communicators[self.current] = replace(communicator, missing=int(count["count"]))
        elif ranks := _MISSING_RANKS.fullmatch(text):
            numbers = [int(number) for number in ranks["ranks"].split(",")]
            self.missing.extend(RasRank(number, None, None, self._id()) for number in numbers)
        elif text.lstrip().startswith(("Process ", "Rank ", "The missing rank")) and not _STATUS_ONLY.fullmatch(text):
            raise unreadable(TOOL, line, "a process or rank that is cut")

    def _id(self) -> str | None:
        return self.named.get(self.current) if self.current else None

    def result(self) -> NcclRas:
        silent = [*self.dead, *self.unresponsive]
        if len(silent) == len(self.sole) == 1:
            # one process with one GPU is silent: whatever rank is missing is its
            self.missing = [replace(rank, host=silent[0].host, device=silent[0].device) for rank in self.missing]
        return NcclRas(
            communicators=tuple(self.communicators.values()),
            dead=tuple(self.dead),
            unresponsive=tuple(self.unresponsive),
            missing_ranks=tuple(self.missing),
            outliers=tuple(self.outliers),
        )

"""The text of `ncclras`: a summary of the job, a table of communicators in groups, then who is missing or behind."""

from __future__ import annotations

import re
from dataclasses import replace

from nodectl.parsers.nccl.ncclras_answer import TOOL, NcclRas, RasCommunicator, RasJob, RasProcess, RasRank, status_of
from nodectl.parsers.nvidia.words import is_noise
from nodectl.parsers.text import Line, unreadable, untagged

_VERSION = re.compile(r"NCCL version (\d{1,4}\.\S{1,60})")
_JOB = re.compile(r"\s*(\d{1,9})(?:\s+\d{1,9}(?:-\d{1,9})?){2}\s+(\d{1,9})\s+(\d{1,9})\s*")
_GROUP = re.compile(
    r"\s*(?P<group>\d{1,6})\s+(?P<comms>\d{1,6})\s+\d{1,9}\s+\d{1,9}(?:-\d{1,9})?\s+(?P<ranks>\d{1,9})\s+(?P<seen>\d{1,9})\s+"
    r"(?P<state>[A-Z]{2,16})\s+(?P<errors>[A-Z]{2,16}(?:,[A-Z]{2,16}){0,4})\s*"
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


def ras_of_text(lines: list[Line]) -> NcclRas:
    """ParseError where there is no table, or a row of it is cut."""
    answer = _Answer()
    for line in untagged(lines):
        answer.read(line)
    if not answer.has_table:
        first = next(line for line in lines if line.text.strip())
        raise unreadable(TOOL, first, "no table of communicators")
    return answer.result()


class _Answer:
    """What was read so far."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.job = RasJob(None, None, None)
        self.has_table = False
        self.in_summary = False
        self.communicators: dict[tuple[int, int], RasCommunicator] = {}
        self.section = ""
        self.current: tuple[int, int] | None = None
        self.dead: list[RasProcess] = []
        self.unresponsive: list[RasProcess] = []
        self.sole: list[RasProcess] = []  # processes of one GPU, whose rank is then certain
        self.missing: list[RasRank] = []
        self.outliers: list[RasRank] = []

    def read(self, line: Line) -> None:
        text = line.text.rstrip()
        if version := _VERSION.match(text):
            self.version = version[1]
        elif text.startswith("Job summary"):
            self.in_summary = True
        elif text.startswith("Group ") and "Status" in text:
            self.has_table, self.in_summary = True, False
            self.section = "table"
        elif self.in_summary and text.lstrip()[:1].isdigit() and not is_noise(text):
            self._job(line)
        elif self.section == "table" and text.lstrip()[:1].isdigit() and not is_noise(text):
            self._group(line)
        elif text in ("Errors", "Warnings", "DEAD", "INCOMPLETE", "TIMEOUT"):
            self.section, self.current = text, None
        elif text.startswith("#"):
            self._named(line)
        elif text.startswith(" "):
            self._detail(line)

    def _job(self, line: Line) -> None:
        match = _JOB.fullmatch(line.text)
        if match is None:
            raise unreadable(TOOL, line, "a summary of the job that is cut")
        self.job = RasJob(int(match[1]), int(match[2]), int(match[3]))
        self.in_summary = False

    def _group(self, line: Line) -> None:
        match = _GROUP.fullmatch(line.text)
        if match is None or int(match["comms"]) + len(self.communicators) > _LIMIT:
            raise unreadable(TOOL, line, "a group of communicators that is cut, or of more than a job can have")
        words = match["errors"].split(",")
        ranks, comms = int(match["ranks"]), int(match["comms"])
        missing = 0 if "INCOMPLETE" not in words else ranks - int(match["seen"]) if comms == 1 else None
        for index in range(comms):
            self.communicators[int(match["group"]), index] = RasCommunicator(
                id=None,
                ranks=ranks,
                missing=max(missing, 0) if missing is not None else None,
                status=status_of(words),
                state=match["state"],
                errors=match["errors"],
            )

    def _named(self, line: Line) -> None:
        match = _NAMED.fullmatch(line.text.rstrip())
        key = (int(match["group"]), int(match["index"])) if match else None
        if match is None or key is None or key not in self.communicators:
            raise unreadable(TOOL, line, "a communicator that is cut, or not in the table")
        self.section, self.current = match["what"], key
        self.communicators[key] = replace(self.communicators[key], id=match["id"])

    def _detail(self, line: Line) -> None:
        text = line.text.rstrip()
        if process := _PROCESS.fullmatch(text):
            found = RasProcess(process["host"], int(process["pid"]), int(process["device"]))
            (self.dead if self.section == "DEAD" else self.unresponsive).append(found)
            if not process["more"]:
                self.sole.append(found)
        elif rank := _RANK.fullmatch(text):
            device = int(rank["device"]) if rank["device"] else None
            self._rank(RasRank(int(rank["rank"]), rank["host"], device, self._id()))
        elif self.current is not None and (count := _MISSING_COUNT.fullmatch(text)):
            known = self.communicators[self.current]
            self.communicators[self.current] = replace(known, missing=int(count["count"]))
        elif ranks := _MISSING_RANKS.fullmatch(text):
            numbers = [int(number) for number in ranks["ranks"].split(",")]
            self.missing.extend(RasRank(number, None, None, self._id()) for number in numbers)
        elif text.lstrip().startswith(("Process ", "Rank ", "The missing rank")) and not _STATUS_ONLY.fullmatch(text):
            raise unreadable(TOOL, line, "a process or rank that is cut")

    def _rank(self, rank: RasRank) -> None:
        (self.missing if self.section == "INCOMPLETE" else self.outliers).append(rank)

    def _id(self) -> str | None:
        return self.communicators[self.current].id if self.current else None

    def result(self) -> NcclRas:
        silent = [*self.dead, *self.unresponsive]
        if len(silent) == len(self.sole) == 1:
            # one process with one GPU is silent: whatever rank is missing is its
            self.missing = [replace(rank, host=silent[0].host, device=silent[0].device) for rank in self.missing]
        return NcclRas(
            nccl_version=self.version,
            job=self.job,
            communicators=tuple(self.communicators.values()),
            dead=tuple(self.dead),
            unresponsive=tuple(self.unresponsive),
            missing_ranks=tuple(self.missing),
            outliers=tuple(self.outliers),
        )

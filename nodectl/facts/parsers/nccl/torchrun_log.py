"""Reads why a torch job ended: elastic's summary, NCCL's watchdog, a rendezvous that could not be reached."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.text import Line, foreign, lines_of, unreadable, untagged

TOOL = "torchrun-log"
_RANK = re.compile(r"(?:\[rank(?P<tag>\d{1,9})\]|\bRank (?P<rank>\d{1,9})\])")
_TIMEOUT = re.compile(
    r"WorkNCCL\(SeqNum=(?P<sequence>\d{1,18}), OpType=(?P<op>\w{1,40}),[^)]{0,400}?"
    r"Timeout\(ms\)=(?P<timeout>\d{1,15})\)"
)
_AT_WORK = re.compile(r"\bat (?:NCCL )?work(?: sequence id)?: (?P<sequence>\d{1,18})\b")
_STATE = re.compile(
    r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,18}), last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})"
)
_STUCK = re.compile(r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds")
_HEARTBEAT = re.compile(r"Heartbeat monitor timed out")
_RENDEZVOUS = re.compile(
    r"client socket has timed out after \S{1,20} while trying to connect to "
    r"(?:\((?P<old_host>[^,()]{1,255}), (?P<old_port>\d{1,5})\)"
    r"|(?P<host>\[[^\]]{1,80}\]|[^\s:]{1,255}):(?P<port>\d{1,5})\b)"
)
_OURS = re.compile(
    r"(?<!-m )torch[./]distributed|torch\.elastic|torchelastic|\[c10d\]|ProcessGroupNCCL"
    r"|ChildFailedError|RendezvousConnectionError"
)
_SIGNAL = re.compile(r"Signal (\d{1,3}) \((SIG[A-Z0-9+-]{2,12})\)")


@dataclass(frozen=True, slots=True)
class TorchrunFailure:
    """One worker's end, as elastic observed it; `signal` by its name."""

    time: str | None = None
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    exitcode: int | None = None
    signal: str | None = None
    error_file: str | None = None
    traceback: str | None = None
    pid: int | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchdogTimeout:
    """A collective that one rank waited for in vain, and how far that rank had come.

    `kind` is `stuck` where the watchdog itself made no progress for `timeout_ms`: a call of CUDA or NCCL hangs there.
    """

    rank: int | None
    op: str | None = None
    sequence: int | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    timeout_ms: int | None = None
    kind: str = "timeout"


@dataclass(frozen=True, slots=True)
class RendezvousTimeout:
    """The store that a worker could not reach."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class TorchrunLog:
    """The log's news of a job; empty and None if it tells of no such thing: the job may have ended well."""

    root_cause: TorchrunFailure | None
    others: tuple[TorchrunFailure, ...]
    watchdog: tuple[WatchdogTimeout, ...]
    rendezvous_timeout: RendezvousTimeout | None


def parse_torchrun_log(text: str) -> TorchrunLog:
    """Read the output; raise ParseError if nothing is torch's, or a line of the summary is cut."""
    lines = lines_of(text, TOOL)
    summary = _SummaryReader()
    watchdog: dict[tuple[int | None, int | None], WatchdogTimeout] = {}
    stuck: dict[int | None, WatchdogTimeout] = {}
    rendezvous: RendezvousTimeout | None = None
    is_ours = False
    for line in untagged(lines):
        summary.read(line)
        if "atchdog" in line.text or "last enqueued" in line.text:
            _watchdog(line, watchdog)
        if "watchdog got stuck" in line.text or "monitor timed out" in line.text:
            _stuck(line, stuck)
        if "client socket has timed out" in line.text:
            rendezvous = rendezvous or _rendezvous(line)
        is_ours = is_ours or _OURS.search(line.text) is not None
    failures = summary.failures()
    if not (is_ours or failures or watchdog or stuck):
        raise foreign(TOOL, lines, "no line of torch.distributed")
    root, others = _ordered(failures)
    return TorchrunLog(root, others, (*watchdog.values(), *stuck.values()), rendezvous)


def _ordered(failures: list[_Failure]) -> tuple[TorchrunFailure | None, tuple[TorchrunFailure, ...]]:
    """Each agent names a root cause of its own: the earliest is the job's."""
    roots = [failure for failure in failures if failure.is_root]
    if not roots:
        return None, tuple(_worker(failure) for failure in failures)
    first = min(roots, key=lambda failure: failure.values.get("time") or "~")
    return _worker(first), tuple(_worker(failure) for failure in failures if failure is not first)


def _worker(failure: _Failure) -> TorchrunFailure:
    values = dict(failure.values)
    refused = {"error_file": values.pop("error_file")} if "N/A" in values.get("error_file", "") else {}
    return TorchrunFailure(**values, signal=_signal(values), unavailable=refused)


def _signal(values: Mapping[str, Any]) -> str | None:
    named = _SIGNAL.search(values.get("traceback", ""))
    if named is not None:
        return named[2]
    code = values.get("exitcode")
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return None


def _watchdog(line: Line, timeouts: dict[tuple[int | None, int | None], WatchdogTimeout]) -> None:
    named = _RANK.search(line.text)
    rank = int(named["tag"] or named["rank"]) if named else None

    def note(sequence: int | None, **values: Any) -> None:
        timeout = timeouts.get((rank, sequence)) or WatchdogTimeout(rank, sequence=sequence)
        timeouts[rank, sequence] = replace(timeout, **values)

    if work := _TIMEOUT.search(line.text):
        note(int(work["sequence"]), op=work["op"], timeout_ms=int(work["timeout"]))
    elif "WorkNCCL(" in line.text:
        raise unreadable(TOOL, line, "a watchdog's line that is cut")
    if state := _STATE.search(line.text):
        at_work = _AT_WORK.search(line.text)
        sequence = int(at_work["sequence"]) if at_work else _latest(timeouts, rank)
        note(sequence, last_enqueued=int(state["enqueued"]), last_completed=int(state["completed"]))
    elif "last enqueued" in line.text:
        raise unreadable(TOOL, line, "a watchdog's line that is cut")


def _stuck(line: Line, stuck: dict[int | None, WatchdogTimeout]) -> None:
    """Add a stuck rank to `stuck`; of the monitor's two messages on a rank only the second has the seconds."""
    got_stuck = _STUCK.search(line.text)
    if got_stuck is None and not _HEARTBEAT.search(line.text):
        raise unreadable(TOOL, line, "a watchdog's line that is cut")
    named = _RANK.search(line.text)
    rank = int(named["tag"] or named["rank"]) if named else None
    timeout = stuck.get(rank) or WatchdogTimeout(rank, kind="stuck")
    stuck[rank] = replace(timeout, timeout_ms=int(got_stuck["seconds"]) * 1000) if got_stuck else timeout


def _latest(timeouts: dict[tuple[int | None, int | None], WatchdogTimeout], rank: int | None) -> int | None:
    return next((sequence for owner, sequence in reversed(timeouts) if owner == rank), None)


def _rendezvous(line: Line) -> RendezvousTimeout:
    match = _RENDEZVOUS.search(line.text)
    if match is None:
        raise unreadable(TOOL, line, "a connection without its host and port")
    host, port = match["old_host"] or match["host"], int(match["old_port"] or match["port"])
    if port > 65535:
        raise ParseError(f"{TOOL}: line {line.number}: {port} is no port")
    return RendezvousTimeout(host.strip("[]"), port)


_ROOT = "Root Cause (first observed failure):"
_BORDER = re.compile(r"(?<![=-])[=-]{20,}\s*$")
_ENTRY = re.compile(r"(?:^|[\s:\])])\[\d{1,9}\]:\s*$")
_FIELD = re.compile(r"(?:^|[\s\]:>)])(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,8}: ?(?P<value>.*)$")
_RANK_FIELD = re.compile(r"(?P<rank>\d{1,9}) \(local_rank: (?P<local_rank>\d{1,9})\)")
_EXIT = re.compile(r"(?P<exitcode>-?\d{1,9}) \(pid: (?P<pid>\d{1,10})\)(?: ?\(SIG[A-Z0-9+-]{2,12}\))?")
_MAX_TRACEBACK_LINES = 200


@dataclass(slots=True)
class _Failure:
    """One worker; `values` are those of TorchrunFailure that are printed, by name."""

    is_root: bool
    values: dict[str, Any] = field(default_factory=dict)


class _SummaryReader:
    """Reads line by line; what is outside a summary is passed over."""

    def __init__(self) -> None:
        self._failures: list[_Failure] = []
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
            self._failures.append(_Failure(is_root=self._section))
        elif self._failures:
            self._field(line, text)

    def failures(self) -> list[_Failure]:
        """All, each worker once, in the order in which they were printed."""
        self._end_traceback()
        unique: dict[tuple[object, ...], _Failure] = {}
        for failure in self._failures:
            first = unique.setdefault(tuple(sorted(failure.values.items())), failure)
            first.is_root = first.is_root or failure.is_root
        return [failure for failure in unique.values() if failure.values]

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
            numbers = (_RANK_FIELD if key == "rank" else _EXIT).fullmatch(value)
            if numbers is None:
                raise unreadable(TOOL, line, f"a {key} that is cut")
            self._failures[-1].values |= {name: int(number) for name, number in numbers.groupdict().items()}
        elif key == "traceback":
            self._traceback = [value]
        elif not value:
            raise unreadable(TOOL, line, f"a {key} without its value")
        else:
            self._failures[-1].values[key] = value

    def _end_traceback(self) -> None:
        if self._traceback is not None and self._failures:
            self._failures[-1].values["traceback"] = "\n".join(self._traceback).strip()
        self._traceback = None

"""Reads why a torch job ended: elastic's summary, NCCL's watchdog, a rendezvous that could not be reached."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping
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
_SIGNAL = re.compile(r"Signal \d{1,3} \((SIG[A-Z0-9+-]{2,12})\)")
# of elastic's summary
_ROOT = "Root Cause (first observed failure):"
_BORDER = re.compile(r"(?<![=-])[=-]{20,}\s*$")
_ENTRY = re.compile(r"(?:^|[\s:\])])\[\d{1,9}\]:\s*$")
_FIELD = re.compile(r"(?:^|[\s\]:>)])(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,8}: ?(?P<value>.*)$")
_NUMBERS = {
    "rank": re.compile(r"(?P<rank>\d{1,9}) \(local_rank: (?P<local_rank>\d{1,9})\)"),
    "exitcode": re.compile(r"(?P<exitcode>-?\d{1,9}) \(pid: (?P<pid>\d{1,10})\)(?: ?\(SIG[A-Z0-9+-]{2,12}\))?"),
}
_MAX_TRACEBACK_LINES = 200


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
    lines = list(untagged(lines_of(text, TOOL)))
    failures = _failures(lines)
    watchdog: dict[tuple[int | None, int | None], WatchdogTimeout] = {}
    stuck: dict[int | None, WatchdogTimeout] = {}
    for line in lines:
        if "atchdog" in line.text or "last enqueued" in line.text:
            _watchdog(line, watchdog)
        if "watchdog got stuck" in line.text or "monitor timed out" in line.text:
            _stuck(line, stuck)
    rendezvous = next((_rendezvous(line) for line in lines if "client socket has timed out" in line.text), None)
    if not (failures or watchdog or stuck or any(_OURS.search(line.text) for line in lines)):
        raise foreign(TOOL, lines, "no line of torch.distributed")
    # each agent names a root cause of its own: the earliest is the job's
    roots = [failure for failure in failures if failure["is_root"]]
    first = min(roots, key=lambda failure: failure.get("time", "~"), default=None)
    return TorchrunLog(
        _worker(first) if first else None,
        tuple(_worker(failure) for failure in failures if failure is not first),
        (*watchdog.values(), *stuck.values()),
        rendezvous,
    )


def _failures(lines: Iterable[Line]) -> list[dict[str, Any]]:
    failures: list[dict[str, Any]] = []
    is_root: bool | None = None  # None outside of a summary
    traceback: list[str] | None = None
    for line in lines:
        text = line.text.rstrip()
        if text.endswith(("Failures:", _ROOT)):
            is_root, traceback = text.endswith(_ROOT), None
        elif is_root is None:
            continue
        elif _BORDER.search(text):
            is_root, traceback = None, None
        elif _ENTRY.search(text):
            failures.append({"is_root": is_root})
            traceback = None
        elif traceback is not None:
            if len(traceback) < _MAX_TRACEBACK_LINES:
                traceback.append(text)
                failures[-1]["traceback"] = "\n".join(traceback).strip()
        elif failures and (match := _FIELD.search(text)):
            key, value = match["key"], match["value"].strip()
            failures[-1] |= _values(key, value, line)
            traceback = [value] if key == "traceback" else None
    unique: dict[tuple[object, ...], dict[str, Any]] = {}
    for failure in failures:
        values = tuple(sorted((name, value) for name, value in failure.items() if name != "is_root"))
        if values:
            unique.setdefault(values, failure)["is_root"] |= failure["is_root"]
    return list(unique.values())


def _values(key: str, value: str, line: Line) -> dict[str, Any]:
    if key not in _NUMBERS:
        if not value and key != "traceback":
            raise unreadable(TOOL, line, f"a {key} without its value")
        return {key: value}
    numbers = _NUMBERS[key].fullmatch(value)
    if numbers is None:
        raise unreadable(TOOL, line, f"a {key} that is cut")
    return {name: int(number) for name, number in numbers.groupdict().items()}


def _worker(failure: Mapping[str, Any]) -> TorchrunFailure:
    values = {name: value for name, value in failure.items() if name != "is_root"}
    refused = {"error_file": values.pop("error_file")} if "N/A" in values.get("error_file", "") else {}
    named, code = _SIGNAL.search(values.get("traceback", "")), values.get("exitcode", 0)
    by_number = {-number: number.name for number in signal.Signals}
    return TorchrunFailure(**values, signal=named[1] if named else by_number.get(code), unavailable=refused)


def _rank(line: Line) -> int | None:
    named = _RANK.search(line.text)
    return int(named["tag"] or named["rank"]) if named else None


def _watchdog(line: Line, timeouts: dict[tuple[int | None, int | None], WatchdogTimeout]) -> None:
    rank, noted = _rank(line), dict[str, Any]()
    if work := _TIMEOUT.search(line.text):
        noted = {"sequence": int(work["sequence"]), "op": work["op"], "timeout_ms": int(work["timeout"])}
    elif "WorkNCCL(" in line.text:
        raise unreadable(TOOL, line, "a watchdog's line that is cut")
    if state := _STATE.search(line.text):
        at_work = _AT_WORK.search(line.text)
        latest = next((sequence for owner, sequence in reversed(timeouts) if owner == rank), None)
        sequence = int(at_work["sequence"]) if at_work else noted.get("sequence", latest)
        noted |= {"sequence": sequence, "last_enqueued": int(state["enqueued"])}
        noted["last_completed"] = int(state["completed"])
    elif "last enqueued" in line.text:
        raise unreadable(TOOL, line, "a watchdog's line that is cut")
    if noted:
        key = rank, noted["sequence"]
        timeouts[key] = replace(timeouts.get(key) or WatchdogTimeout(rank), **noted)


def _stuck(line: Line, stuck: dict[int | None, WatchdogTimeout]) -> None:
    """Add a stuck rank to `stuck`; of the monitor's two messages on a rank only the second has the seconds."""
    got_stuck, rank = _STUCK.search(line.text), _rank(line)
    if got_stuck is None and not _HEARTBEAT.search(line.text):
        raise unreadable(TOOL, line, "a watchdog's line that is cut")
    timeout = stuck.get(rank) or WatchdogTimeout(rank, kind="stuck")
    stuck[rank] = replace(timeout, timeout_ms=int(got_stuck["seconds"]) * 1000) if got_stuck else timeout


def _rendezvous(line: Line) -> RendezvousTimeout:
    match = _RENDEZVOUS.search(line.text)
    if match is None:
        raise unreadable(TOOL, line, "a connection without its host and port")
    host, port = match["old_host"] or match["host"], int(match["old_port"] or match["port"])
    if port > 65535:
        raise ParseError(f"{TOOL}: line {line.number}: {port} is no port")
    return RendezvousTimeout(host.strip("[]"), port)

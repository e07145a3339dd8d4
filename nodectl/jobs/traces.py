"""The traces of a job's ranks: asked of the hosts, and judged together: shares of the step, the slowest rank."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from nodectl.common import bounded_json
from nodectl.common.files import local_path
from nodectl.common.units import MIB
from nodectl.errors import UsageError
from nodectl.jobs.nodes import ask, why
from nodectl.jobs.rows import TraceRow
from nodectl.model.host import Host
from nodectl.model.job import RankFigures, RankTrace, SlowRank, StepTime, TraceReport
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import Reader
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

_TIMEOUT_S = 900.0
# a rank is slow if its own part of a step takes this much longer than the others', in most of its steps
_STANDS_OUT = 0.05
_MOST_OF = 2 / 3
_COMPUTING = ("compute", "forward", "backward", "optimizer")
_PARTS = frozenset([*_COMPUTING, "copy", "communication", "loading", "idle"])


def read_traces(
    transport: Transport, hosts: Sequence[Host], job_id: str, forks: int
) -> tuple[tuple[RankTrace, ...], Mapping[str, str]]:
    """Every rank of the newest attempt that was traced, in their order; and hosts that did not answer, with why."""
    answers = ask(transport, hosts, lambda _: ["traces", job_id], forks=forks, timeout_s=_TIMEOUT_S, kind=TraceRow)
    newest: dict[tuple[int, str], tuple[int, RankTrace]] = {}
    for host, rows in answers.lines.items():
        for row in rows:
            attempt, trace = row["attempt"], _trace(host, row)
            if attempt >= newest.get((trace.rank, host), (0, trace))[0]:
                newest[trace.rank, host] = attempt, trace
    last = max((attempt for attempt, _ in newest.values()), default=0)
    return tuple(trace for _, (attempt, trace) in sorted(newest.items()) if attempt == last), answers.problems


def _trace(host: str, row: Mapping[str, Any]) -> RankTrace:
    rank, problem, summary = row["rank"], row["problem"], row["summary"]
    name, size = row["file"], row["size_bytes"]
    if problem or summary is None:
        return RankTrace(host, rank, problem=problem or "no figures", file=name, size_bytes=size)
    return RankTrace(host, rank, summary["device"], tuple(map(_step, summary["steps"])), file=name, size_bytes=size)


def _step(row: Mapping[str, Any]) -> StepTime:
    return StepTime(row["number"], row["step_us"], row["collectives_us"], row["parts_us"])


def judge(
    traces: Sequence[RankTrace], problems: Mapping[str, str], expected: Mapping[int, str] | None = None
) -> TraceReport:
    """Return each rank's figures and the slowest rank; `expected` maps the job's ranks to their hosts."""
    at = expected or {}
    traced = {(trace.rank, trace.host) for trace in traces}
    # a host's trace for a rank of another host that reports its own
    false = [
        candidate
        for candidate in traces
        if (candidate.rank, at.get(candidate.rank, candidate.host)) in traced - {(candidate.rank, candidate.host)}
    ]
    traces = [trace for trace in traces if trace not in false]
    rank_problems = {f"rank {trace.rank} on {trace.host}": trace.problem for trace in traces if trace.problem}
    rank_problems |= {f"rank {trace.rank} on {trace.host}": f"it is a rank of {at[trace.rank]}" for trace in false}
    traced_ranks = {trace.rank for trace in traces}
    for rank, host in (expected or {}).items() if traces else ():
        if rank not in traced_ranks and host not in problems:
            rank_problems[f"rank {rank} on {host}"] = "no trace: it was no Python with torch, or never started"
    read = [trace for trace in traces if trace.steps]
    figures = tuple(_figures(trace, _least_exposed(read)) for trace in read)
    return TraceReport(figures, slowest(read), {**problems, **rank_problems})


def _least_exposed(traces: Sequence[RankTrace]) -> dict[int, float]:
    """Return, by step, the least time of any rank in collectives alone: what they take without waiting."""
    least: dict[int, float] = {}
    for trace in traces:
        for step in trace.steps:
            exposed = step.parts_us.get("communication", 0.0)
            least[step.number] = min(exposed, least.get(step.number, exposed))
    return least


def _figures(trace: RankTrace, least_exposed: Mapping[int, float]) -> RankFigures:
    whole = sum(step.step_us for step in trace.steps) or 1.0

    def share(*names: str) -> float:
        return sum(step.parts_us.get(name, 0.0) for step in trace.steps for name in names) / whole

    waiting = sum(step.parts_us.get("communication", 0.0) - least_exposed[step.number] for step in trace.steps)
    return RankFigures(
        host=trace.host,
        rank=trace.rank,
        device=trace.device,
        steps=len(trace.steps),
        step_ms=median(step.step_us for step in trace.steps) / 1000,
        compute=share(*_COMPUTING),
        copies=share("copy"),
        loading=share("loading"),
        communication=sum(step.collectives_us for step in trace.steps) / whole,
        exposed=share("communication"),
        waiting=waiting / whole,
        idle=share("idle"),
    )


def slowest(traces: Sequence[RankTrace]) -> SlowRank | None:
    """Return the rank whose own work a step takes longest; None if none stands out from the others' median."""
    numbers = set.intersection(*({step.number for step in trace.steps} for trace in traces)) if traces else set()
    if len(traces) < 2 or not numbers:
        return None
    own_us = {trace.rank: [step.own_us for step in trace.steps if step.number in numbers] for trace in traces}
    trace = max(traces, key=lambda one: fmean(own_us[one.rank]))
    others = [other for other in traces if other is not trace]
    beyond = [mine - median(own_us[other.rank][at] for other in others) for at, mine in enumerate(own_us[trace.rank])]
    typical = median(step.step_us for one in traces for step in one.steps)
    by_us = median(beyond)
    if by_us <= _STANDS_OUT * typical or sum(more > 0 for more in beyond) < _MOST_OF * len(beyond):
        return None
    part, mine, theirs = max(
        (_compare(name, trace, others) for name in _PARTS - {"communication"}), key=lambda row: row[1] - row[2]
    )
    return SlowRank(trace.host, trace.rank, by_us / 1000, by_us / typical, part, mine / 1000, theirs / 1000)


def _compare(part: str, trace: RankTrace, others: Sequence[RankTrace]) -> tuple[str, float, float]:
    """Return the part's mean time a step, of the rank and in the middle of the others."""
    return part, _mean(part, trace), median(_mean(part, other) for other in others)


def _mean(part: str, trace: RankTrace) -> float:
    return fmean(step.parts_us.get(part, 0.0) for step in trace.steps)


LIMIT_MIB = 1024
_MODULE = "jobs.traces"
_FILE_S = 600.0


@dataclass(frozen=True, slots=True)
class Gathered:
    """Report what was brought into `folder`; `problems` by host. With `too_large` nothing was: it is over the limit."""

    folder: Path
    files: int
    size_bytes: int
    problems: Mapping[str, str]
    too_large: bool = False


def gather(
    transport: Transport, hosts: Sequence[Host], job_id: str, traces: Sequence[RankTrace], folder: Path,
    *, forks: int, limit_mib: int = LIMIT_MIB,
) -> Gathered:  # fmt: skip
    """One file a rank, `HOST.RANK.json.gz`; hosts at once, a host's ranks one after the other."""
    wanted: dict[str, list[RankTrace]] = {}
    for trace in traces:
        if trace.file:
            wanted.setdefault(trace.host, []).append(trace)
    size = sum(trace.size_bytes for rank_traces in wanted.values() for trace in rank_traces)
    if size > limit_mib * MIB:
        return Gathered(folder, 0, size, {}, too_large=True)
    make_folder(folder)
    files, problems = 0, {}
    taken = [host for host in hosts if host.name in wanted]
    for host, sinks in fan_out(taken, lambda host: _of_host(transport, host, job_id, wanted[host.name], folder), forks):
        files += sum(not sink.problem for sink in sinks)
        if problem := "; ".join(sink.problem for sink in sinks if sink.problem):
            problems[host.name] = problem
    return Gathered(folder, files, size, problems)


def make_folder(folder: Path) -> None:
    """Make a private folder; raise UsageError where there cannot be one."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}", "give another folder with --to") from error


def _of_host(transport: Transport, host: Host, job_id: str, traces: Sequence[RankTrace], folder: Path) -> list[_Sink]:
    sinks = []
    for trace in traces:
        sink = _Sink(local_path(folder, host.name, trace.file), trace.size_bytes)
        try:
            with sink:
                done = run_payload(
                    transport, host, _MODULE, [job_id, trace.file], timeout_s=_FILE_S, bare=True, on_output=sink.take
                )
                sink.end(done)
        except OSError as error:
            sink.problem = f"{error.strerror}: {sink.path}"
        sinks.append(sink)
    return sinks


class _Sink:
    """Writes the frames of one file, which appears only when it is complete."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path, self.problem = path, ""
        self._most, self._size, self._whole = size_bytes, 0, False
        self._frames = Reader()
        self._draft = path.with_name(f".{path.name}.partial")

    def __enter__(self) -> None:
        self._draft.unlink(missing_ok=True)
        # a link that was created there meanwhile is not followed
        self._file = os.fdopen(os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self.problem or not self._whole:
            self._draft.unlink(missing_ok=True)
        else:
            self._draft.replace(self.path)

    def take(self, stream: str, data: bytes) -> None:
        """Write received data; a file that exceeds its announced size is dropped."""
        if stream != "stdout" or self.problem:
            return
        try:
            for text in self._frames.feed(data):
                self._take_frame(bounded_json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            self.problem = f"its answer cannot be read: {error}"
        except OSError as error:
            self.problem = f"{error.strerror}: {self.path}"

    def _take_frame(self, frame: Mapping[str, object]) -> None:
        if "end" in frame:
            self._whole = frame["end"] == self._size
            return
        data = base64.b64decode(str(frame["data"]), validate=True)
        self._size += len(data)
        if self._size > self._most:
            raise ValueError(f"it has more than the {self._most} bytes that were announced")
        self._file.write(data)

    def end(self, done: CommandResult) -> None:
        """Record as `problem` why the file is incomplete, if it is."""
        if not self.problem and (done.outcome is not Outcome.RAN or done.exit_status or not self._whole):
            self.problem = why(done) if done.outcome is not Outcome.RAN or done.exit_status else "it was cut"

"""The traces of a job's ranks: asked of the hosts, and judged together: shares of the step, the slowest rank."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from nodectl.jobs.nodes import ask
from nodectl.model.host import Host
from nodectl.model.trace import RankFigures, RankTrace, SlowRank, StepTime, TraceReport
from nodectl.transport.base import Transport

_TIMEOUT_S = 900.0
# a rank is slow where a step of its own takes so much longer than the others', in most of its steps
_STANDS_OUT = 0.05
_MOST_OF = 2 / 3
_COMPUTING = ("compute", "forward", "backward", "optimizer")
_PARTS = frozenset([*_COMPUTING, "copy", "communication", "loading", "idle"])
_MOST_STEPS = 1000
_MOST_US = 1e15


def read_traces(
    transport: Transport, hosts: Sequence[Host], job_id: str, forks: int
) -> tuple[tuple[RankTrace, ...], Mapping[str, str]]:
    """Every rank of the newest attempt that was traced, in their order; and hosts that did not answer, with why."""
    answers = ask(transport, hosts, lambda _: ["traces", job_id], forks=forks, timeout_s=_TIMEOUT_S)
    newest: dict[int, tuple[int, RankTrace]] = {}
    problems = dict(answers.problems)
    for host, rows in answers.lines.items():
        for row in rows:
            try:
                attempt, trace = _trace(host, row)
            except (KeyError, TypeError, ValueError) as error:
                problems[host] = f"its answer cannot be read: {error!r}"
                continue
            if attempt >= newest.get(trace.rank, (0, trace))[0]:
                newest[trace.rank] = attempt, trace
    last = max((attempt for attempt, _ in newest.values()), default=0)
    return tuple(trace for _, (attempt, trace) in sorted(newest.items()) if attempt == last), problems


def _trace(host: str, row: Mapping[str, Any]) -> tuple[int, RankTrace]:
    rank, problem = int(row["rank"]), str(row["problem"])
    name, size, attempt = str(row["file"]), int(row["size_bytes"]), int(row["attempt"])
    summary = row["summary"]
    if name and not re.fullmatch(rf"{rank}\.[a-z.-]{{1,20}}", name):
        raise ValueError(f"{name!r} is no trace of rank {rank}")
    if problem or summary is None:
        return attempt, RankTrace(host, rank, problem=problem or "no figures", file=name, size_bytes=size)
    if summary["device"] not in ("gpu", "cpu") or not 0 < len(summary["steps"]) <= _MOST_STEPS:
        raise ValueError("a summary of no steps, or of too many")
    steps = tuple(map(_step, summary["steps"]))
    return attempt, RankTrace(host, rank, summary["device"], steps, file=name, size_bytes=size)


def _step(row: Mapping[str, Any]) -> StepTime:
    parts = {str(name): _time(value) for name, value in row["parts_us"].items()}
    if not parts.keys() <= _PARTS:
        raise ValueError("a step of unknown parts")
    return StepTime(int(row["number"]), _time(row["step_us"]), _time(row["collectives_us"]), parts)


def _time(value: object) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= _MOST_US:
        raise ValueError(f"{value!r} is not a time")
    return float(value)


def judge(
    traces: Sequence[RankTrace], problems: Mapping[str, str], expected: Mapping[int, str] | None = None
) -> TraceReport:
    """Figures of each rank, and the slowest; `expected` are the job's ranks with their hosts."""
    said = {f"rank {trace.rank} on {trace.host}": trace.problem for trace in traces if trace.problem}
    known = {trace.rank for trace in traces}
    for rank, host in (expected or {}).items() if traces else ():
        if rank not in known and host not in problems:
            said[f"rank {rank} on {host}"] = "no trace: it was no Python with torch, or never started"
    read = [trace for trace in traces if trace.steps]
    figures = tuple(_figures(trace, _least_exposed(read)) for trace in read)
    return TraceReport(figures, slowest(read), {**problems, **said})


def _least_exposed(traces: Sequence[RankTrace]) -> dict[int, float]:
    """By number of the step, the least time of any rank in collectives alone: what they take without waiting."""
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
    """The rank with the most time of its own a step; None where none stands out from the median of the others."""
    numbers = set.intersection(*({step.number for step in trace.steps} for trace in traces)) if traces else set()
    if len(traces) < 2 or not numbers:
        return None
    own = {trace.rank: [step.own_us for step in trace.steps if step.number in numbers] for trace in traces}
    trace = max(traces, key=lambda one: fmean(own[one.rank]))
    others = [other for other in traces if other is not trace]
    beyond = [mine - median(own[other.rank][at] for other in others) for at, mine in enumerate(own[trace.rank])]
    typical = median(step.step_us for one in traces for step in one.steps)
    by_us = median(beyond)
    if by_us <= _STANDS_OUT * typical or sum(more > 0 for more in beyond) < _MOST_OF * len(beyond):
        return None
    part, mine, theirs = max(
        (_compare(name, trace, others) for name in _PARTS - {"communication"}), key=lambda row: row[1] - row[2]
    )
    return SlowRank(trace.host, trace.rank, by_us / 1000, by_us / typical, part, mine / 1000, theirs / 1000)


def _compare(part: str, trace: RankTrace, others: Sequence[RankTrace]) -> tuple[str, float, float]:
    """The part's mean time a step, of the rank and in the middle of the others."""
    return part, _mean(part, trace), median(_mean(part, other) for other in others)


def _mean(part: str, trace: RankTrace) -> float:
    return fmean(step.parts_us.get(part, 0.0) for step in trace.steps)

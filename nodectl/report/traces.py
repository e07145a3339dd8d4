"""The figures of a job's traces as text and as a JSON document: a line a rank, then the slowest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from nodectl.common.nodeset import fold
from nodectl.common.units import digits
from nodectl.model.trace import RankFigures, SlowRank, TraceReport
from nodectl.report.table import aligned

_HEAD = (
    "RANK",
    "HOST",
    "STEPS",
    "STEP",
    "COMPUTE",
    "COPIES",
    "LOADING",
    "COMM",
    "EXPOSED",
    "OVERLAP",
    "WAITING",
    "IDLE",
)
# where a step's time is spent, in words
PARTS = {
    "compute": "computing on the GPU",
    "copy": "memory copies",
    "loading": "waiting for its data loader",
    "forward": "the forward operators",
    "backward": "the backward operators",
    "optimizer": "the optimizer",
    "idle": "neither computing nor communicating: its Python, or other libraries",
}


def trace_document(report: TraceReport) -> dict[str, object]:
    """`ranks`, `slowest` (or null) and `problems`; shares are of the step's time."""
    ranks = [{**asdict(rank), "overlap": rank.overlap} for rank in report.ranks]
    slowest = None if report.slowest is None else asdict(report.slowest)
    return {"ranks": ranks, "slowest": slowest, "problems": dict(report.problems)}


def trace_text(report: TraceReport) -> str:
    """Return the table, what is missing from it, and last which rank the others wait for."""
    lines = [aligned([_HEAD, *map(_row, report.ranks)])] if report.ranks else []
    lines += _problems(report.problems)
    if report.slowest is not None:
        lines.append(_slowest(report.slowest))
    elif len(report.ranks) > 1:
        lines.append("no rank is slower than the others by more than 5 % of a step")
    return "\n".join(lines or ["no rank was traced: the job was not launched with --trace"])


def _row(rank: RankFigures) -> tuple[str, ...]:
    shares = (
        rank.compute,
        rank.copies,
        rank.loading,
        rank.communication,
        rank.exposed,
        rank.overlap,
        rank.waiting,
        rank.idle,
    )
    cells = ("-" if share is None else f"{share:.1%}" for share in shares)
    return (str(rank.rank), rank.host, str(rank.steps), f"{digits(rank.step_ms)} ms", *cells)


def _problems(problems: Mapping[str, str]) -> list[str]:
    return [
        f"{fold(who for who in problems if problems[who] == why)}: {why}" for why in dict.fromkeys(problems.values())
    ]


def _slowest(slow: SlowRank) -> str:
    return (
        f"slowest: rank {slow.rank} on {slow.host}, by {digits(slow.by_ms)} ms a step ({slow.by_share:.0%} of it);"
        f" most of that in {PARTS.get(slow.part, slow.part)}: {digits(slow.part_ms)} ms,"
        f" others {digits(slow.others_part_ms)} ms"
    )

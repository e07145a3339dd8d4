"""A look at a running job as text and as a JSON document: the verdict, the ranks in groups, what else was seen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict

from nodectl.common.nodeset import fold
from nodectl.model.look import Look, RankNow

_MOST_FRAMES = 6
_MOST_RANKS = 16


def look_document(look: Look) -> dict[str, object]:
    """`ranks`, `verdict`, `missing` (numbers of ranks), `evidence`, `problems` by host."""
    return {**asdict(look), "ranks": [asdict(rank) for rank in look.ranks]}


def look_text(look: Look) -> str:
    """Return who waits for whom; then ranks at the same place together with their stack, counters and NCCL's word."""
    groups: dict[tuple[bool, str, tuple[str, ...]], list[RankNow]] = defaultdict(list)
    for rank in look.ranks:
        groups[rank.waits, rank.doing, rank.stack].append(rank)
    lines = []
    for (waits, doing, stack), ranks in sorted(groups.items(), key=lambda item: (not item[0][0], item[1][0].rank)):
        lines.append(_head(waits, doing, ranks))
        lines += [f"    {frame}" for frame in stack[:_MOST_FRAMES]]
    lines += [f"evidence: {line}" for line in look.evidence]
    lines += [f"{host}: {problem}" for host, problem in look.problems.items()]
    return "\n".join([look.verdict, "", *lines])


def _head(waits: bool, doing: str, ranks: list[RankNow]) -> str:
    numbers = ", ".join(str(rank.rank) for rank in ranks[:_MOST_RANKS])
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    where = fold(dict.fromkeys(rank.host for rank in ranks))
    what = f"waits in {ranks[0].call}, {doing}" if waits else doing
    ages = [rank.output_age_s for rank in ranks if rank.output_age_s is not None]
    said = f"; last output {min(ages):.0f} s ago" if ages else ""
    moved = "; moved" if any(rank.moved for rank in ranks) else ""
    return f"rank {numbers}{more} on {where}: {what}; CPU {max(rank.cpu for rank in ranks):.2f}{said}{moved}"

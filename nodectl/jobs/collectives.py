"""Judges the collectives that NCCL Inspector recorded in a job: bandwidth by kind and size, and who is apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, median_low
from typing import Any

from nodectl.common.nodeset import fold
from nodectl.common.units import digits
from nodectl.model.job import Collective, CollectiveGroup
from nodectl.model.measurement import Measurement

_LATE, _SLOW = 1.5, 1.25  # times another's bandwidth
_LEAST_COUNT, _LEAST_GROUPS = 5, 3
_NEAR_SIZE = 4.0
# of the probe, by NCCL's word; for the last two NCCL counts what each rank brings
_NAMES = {"AllReduce": "all_reduce", "Broadcast": "broadcast", "Reduce": "reduce", "All2All": "alltoall"}
_SHARED = {"AllGather": "all_gather", "ReduceScatter": "reduce_scatter"}


def read_collectives(host: str, rows: Iterable[Mapping[str, Any]]) -> tuple[Collective, ...]:
    """Return what a host's ranks recorded, from rows of `pulse` or `list`."""
    return tuple(Collective(host, **row) for row in rows)


def judge(told: Sequence[Collective], measured: Sequence[Measurement] = ()) -> tuple[CollectiveGroup, ...]:
    """Return a group for each kind, size and number of ranks, those first that take the most time.

    `measured` are the fleet's own measurements by the nccl probe, the newest last.
    """
    groups: dict[tuple[str, int, int, int], list[Collective]] = defaultdict(list)
    for one in told:
        groups[one.kind, one.power, one.ranks, one.nodes].append(one)
    judged = (_group(alike, measured) for alike in groups.values())
    return tuple(sorted(judged, key=lambda group: -group.time_us))


def _group(alike: Sequence[Collective], measured: Sequence[Measurement]) -> CollectiveGroup:
    by_comm: dict[str, list[Collective]] = defaultdict(list)
    for one in alike:
        by_comm[one.comm].append(one)
    # the last of a communicator's ranks waits for nobody: what it sees is the way's bandwidth
    best = [max(one.busbw_gbs for one in members) for members in by_comm.values()]
    like = _like(alike[0], round(median(one.size_bytes for one in alike)), measured)
    return CollectiveGroup(
        kind=alike[0].kind,
        size_bytes=round(median(one.size_bytes for one in alike)),
        ranks=alike[0].ranks,
        nodes=alike[0].nodes,
        groups=len(by_comm),
        count=max(one.count for one in alike),
        time_us=max(one.time_us for one in alike),
        busbw_gbs=median(best),
        least_gbs=min(one.busbw_gbs for one in alike),
        most_gbs=max(one.busbw_gbs for one in alike),
        at=max(one.at for one in alike),
        measured_gbs=None if like is None else like.value,
        floor_gbs=None if like is None else like.expected,
        apart=(*_late(by_comm), *_slow(by_comm)),
    )


def _like(one: Collective, size: int, measured: Sequence[Measurement]) -> Measurement | None:
    """Return the newest measurement of the same collective over as many hosts, of the nearest size within 4 times."""
    name, size = (_NAMES.get(one.kind), size) if one.kind not in _SHARED else (_SHARED[one.kind], size * one.ranks)
    fitting: list[tuple[float, int, Measurement]] = []
    for measurement in measured:
        given, bytes_ = measurement.conditions, measurement.conditions.get("size_bytes")
        if given.get("collective") != name or not isinstance(bytes_, int) or len(measurement.hosts) != one.nodes:
            continue
        times = max(bytes_, size) / max(1, min(bytes_, size))
        if measurement.unit == "GB/s" and times <= _NEAR_SIZE:
            fitting.append((-times, len(fitting), measurement))
    return max(fitting, key=lambda item: item[:2])[2] if fitting else None


def _late(by_comm: Mapping[str, Sequence[Collective]]) -> list[str]:
    """Name ranks with far more bandwidth than the others of their communicator: they come last, and wait for nobody."""
    late: list[Collective] = []
    others: list[float] = []
    for members in by_comm.values():
        known = [one for one in members if one.count >= _LEAST_COUNT]
        usual = median_low([one.busbw_gbs for one in known]) if known else 0.0
        ahead = [one for one in known if one.busbw_gbs >= _LATE * usual]
        if 0 < 2 * len(ahead) <= len(known):
            late += ahead
            others.append(usual)
    if not late:
        return []
    there, elsewhere = digits(median(one.busbw_gbs for one in late)), digits(median(others))
    return [f"{_who(late)}: last to come, the others wait for it: {there} GB/s there, {elsewhere} GB/s elsewhere"]


def _slow(by_comm: Mapping[str, Sequence[Collective]]) -> list[str]:
    """Name groups of ranks whose best bandwidth is far below that of the other groups."""
    best = {comm: max(one.busbw_gbs for one in members) for comm, members in by_comm.items()}
    usual = median(best.values())
    slow = [comm for comm, value in best.items() if _SLOW * value <= usual]
    if len(best) < _LEAST_GROUPS or not 0 < 2 * len(slow) <= len(best):
        return []
    members = [one for comm in slow for one in by_comm[comm]]
    least = digits(median(best[comm] for comm in slow))
    return [f"{_who(members)}: slow together: {least} GB/s, other groups of as many ranks {digits(usual)} GB/s"]


def _who(members: Sequence[Collective]) -> str:
    ranks = fold(str(rank) for rank in sorted({one.rank for one in members if one.rank is not None})).strip("[]")
    return (f"rank {ranks} on " if ranks else "ranks on ") + fold(dict.fromkeys(one.host for one in members))

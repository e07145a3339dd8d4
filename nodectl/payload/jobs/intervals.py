"""Sets of points in time as sorted lists of intervals that do not touch: union, common part, difference, length."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Iterable, List, Sequence, Tuple

Interval = Tuple[float, float]
Intervals = List[Interval]


def union(intervals: Iterable[Interval]) -> Intervals:
    """The same points without overlaps, in order; empty intervals are left out."""
    found: Intervals = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def common(one: Sequence[Interval], other: Sequence[Interval]) -> Intervals:
    """Return what lies in both; each as `union` makes it."""
    found: Intervals = []
    at = too = 0
    while at < len(one) and too < len(other):
        begin, end = max(one[at][0], other[too][0]), min(one[at][1], other[too][1])
        if begin < end:
            found.append((begin, end))
        if one[at][1] < other[too][1]:
            at += 1
        else:
            too += 1
    return found


def within(intervals: Sequence[Interval], begin: float, end: float) -> Intervals:
    """Return what lies between two moments; `intervals` as `union` makes it."""
    first = bisect_right(intervals, (begin, begin)) - 1
    last = bisect_left(intervals, (end, end))
    return common(intervals[max(0, first) : last], [(begin, end)])


def without(one: Sequence[Interval], other: Sequence[Interval]) -> Intervals:
    """Return what lies in `one` alone; each as `union` makes it."""
    found: Intervals = []
    too = 0
    for begin, end in one:
        while too < len(other) and other[too][1] <= begin:
            too += 1
        place = too
        while place < len(other) and other[place][0] < end:
            if other[place][0] > begin:
                found.append((begin, other[place][0]))
            begin = max(begin, other[place][1])
            place += 1
        if begin < end:
            found.append((begin, end))
    return found


def length(intervals: Sequence[Interval]) -> float:
    """Of all together; each as `union` makes it."""
    return sum(end - begin for begin, end in intervals)

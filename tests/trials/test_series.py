"""The order of a trial, series of its measurements, and series as files."""

import pytest

from nodectl.model.measurement import Measurement
from nodectl.model.trial import Pair
from nodectl.trials.series import Taken, schedule, series_of


def measured(value: float, collective: str = "all_reduce", size_bytes: int = 1024) -> Measurement:
    """As the nccl probe gives it."""
    conditions = {"collective": collective, "size_bytes": size_bytes, "backend": "gloo", "time_us": value * 3}
    return Measurement("nccl", ("node01", "node02"), value, "GB/s", conditions=conditions)


def test_a_series_for_each_thing_measured() -> None:
    taken = [
        Taken(
            turn,
            (measured(10 * turn.pair + turn.candidate + 1), measured(7, size_bytes=2048), measured(8, "broadcast")),
        )
        for turn in schedule(2)
    ]
    found = series_of("tree", "ring", taken)
    assert [(each.subject.split(",")[2].strip(), each.size_bytes) for each in found] == [
        ("all_reduce", 1024),
        ("all_reduce", 2048),
        ("broadcast", 1024),
    ]
    assert found[0].pairs == (Pair(1, 2), Pair(11, 12, candidate_first=True))
    assert (found[0].profile, found[0].baseline, found[0].probe, found[0].unit) == ("tree", "ring", "nccl", "GB/s")


def test_what_failed_or_came_to_nothing_is_none() -> None:
    turns = list(schedule(2))
    taken = [
        Taken(turns[0], (measured(5),)),
        Taken(turns[1]),
        Taken(turns[2], (measured(0),)),
        Taken(turns[3], (measured(6),)),
    ]
    (found,) = series_of("tree", "ring", taken)
    assert found.pairs == (Pair(5, None), Pair(6, None, candidate_first=True))
    assert found.complete == ()


def path_of(sender: str, receiver: str, value: float, **conditions: object) -> Measurement:
    """As the tcp probe gives it."""
    given = {"streams": 1, "interfaces": ["eth0", "eth0"], **conditions}
    return Measurement("tcp", (sender, receiver), value, "Gbit/s", f"{sender} -> {receiver}", conditions=given)


def test_more_than_two_paths_are_also_judged_together() -> None:
    values = [(2.0, 4.0, 8.0), (4.0, 8.0, 16.0)]
    taken = [
        Taken(turn, (path_of("a", "b", x), path_of("b", "c", y), path_of("c", "a", z)))
        for turn, (x, y, z) in zip(schedule(1), values, strict=True)
    ]
    mean, *single = series_of("x", "stock", taken)
    assert mean.subject.startswith("mean of 3 paths, streams 1")
    assert mean.pairs[0].baseline == pytest.approx(4.0)
    assert mean.pairs[0].candidate == pytest.approx(8.0)
    assert [each.subject.split(",")[0] for each in single] == ["a -> b", "b -> c", "c -> a"]
    # one of four that failed somewhere is not in the mean, and that is said
    broken = [
        Taken(each.turn, (*each.measurements, *([path_of("d", "a", 3.0)] if each.turn.candidate else [])))
        for each in taken
    ]
    assert series_of("x", "stock", broken)[0].subject.startswith("mean of 3 of 4 paths")
    # two need no mean
    assert len(series_of("x", "stock", [Taken(each.turn, each.measurements[:2]) for each in taken])) == 2

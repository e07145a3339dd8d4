"""Judgements of what NCCL Inspector recorded: bandwidths by kind and size, who is apart, the fleet's own figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodectl.jobs.collectives import judge
from nodectl.model.job import Collective, Job, JobState, Pulse
from nodectl.model.measurement import Measurement
from nodectl.report.jobs import collective_lines, watch_document, watch_text
from nodectl.report.metrics import jobs_metrics

ONE = Collective("node01", 0, "0xa", 4, 2, "AllReduce", 27, 64 << 20, 100, 70_000, 150.0, 1e9)


def world(*values: float, **more: Any) -> list[Collective]:
    """A communicator with a rank for each value, two a host."""
    return [
        replace(ONE, host=f"node{1 + at // 2:02}", rank=at, ranks=len(values), busbw_gbs=value, **more)
        for at, value in enumerate(values)
    ]


def measurement(value: float, *, size: int = 64 << 20, hosts: int = 2, **more: Any) -> Measurement:
    conditions = {"collective": "all_reduce", "size_bytes": size, **more}
    names = tuple(f"node{1 + at:02}" for at in range(hosts))
    return Measurement("nccl", names, value, "GB/s", expected=value - 20, conditions=conditions)


def test_a_rank_that_comes_last_is_named() -> None:
    (group,) = judge(world(41, 40, 39, 150))
    assert group.apart == (
        "rank 3 on node02: last to come, the others wait for it: 150 GB/s there, 40.0 GB/s elsewhere",
    )
    assert (group.busbw_gbs, group.least_gbs, group.most_gbs, group.ranks, group.groups) == (150, 39, 150, 4, 1)


def test_ranks_of_one_host_that_come_last_are_named_together() -> None:
    (group,) = judge(world(40, 41, 100, 101, 40, 41))
    assert len(group.apart) == 1 and group.apart[0].startswith("rank 2-3 on node02: last")


def test_ranks_alike_and_too_few_looks_accuse_nobody() -> None:
    assert judge(world(100, 98, 103, 120))[0].apart == ()
    assert judge(world(40, 40, 40, 150, count=4))[0].apart == ()
    assert judge(world(150, 150, 150, 40))[0].apart == ()  # it came first, and waited
    assert judge([ONE])[0].apart == ()


def test_the_group_of_ranks_that_is_slow_is_named() -> None:
    groups = [
        replace(ONE, host=host, rank=2 * at + place, comm=host, ranks=2, nodes=1, busbw_gbs=value)
        for at, (host, value) in enumerate((("node01", 300.0), ("node02", 120.0), ("node03", 290.0), ("node04", 305.0)))
        for place in (0, 1)
    ]
    (group,) = judge(groups)
    assert group.groups == 4 and len(group.apart) == 1
    assert group.apart[0].startswith("rank 2-3 on node02: slow together: 120 GB/s")


def test_kinds_and_sizes_stand_apart_the_longest_first() -> None:
    told = [*world(100, 100), *world(50, 50, kind="AllGather", power=21, time_us=90_000), *world(9, 9, power=14)]
    assert [(group.kind, group.busbw_gbs) for group in judge(told)] == [
        ("AllGather", 50),
        ("AllReduce", 100),
        ("AllReduce", 9),
    ]


def test_the_probe_s_figure_of_the_same_collective_stands_beside() -> None:
    measured = [
        measurement(300, hosts=1), measurement(200, size=1 << 20), measurement(180), measurement(190),
        measurement(1, collective="all_gather"),
    ]  # fmt: skip
    (group,) = judge(world(100, 100), measured)
    assert (group.measured_gbs, group.floor_gbs) == (190, 170)
    # NCCL counts what each rank brings to an all-gather, the probe counts all of it
    gathered = world(100, 100, kind="AllGather", size_bytes=32 << 20)
    assert judge(gathered, [measurement(77, collective="all_gather")])[0].measured_gbs == 77
    assert judge(world(100, 100, size_bytes=4096), measured[:1])[0].measured_gbs is None


def test_watch_and_metrics_tell_them() -> None:
    told = world(41, 40, 39, 150)
    groups = judge(told, [measurement(190)])
    head, columns, row, apart = collective_lines(groups)
    assert "from NCCL Inspector" in head and columns.split()[0] == "COLLECTIVE"
    assert row.split() == ["AllReduce", "64", "MiB", "4", "100", "150", "39.0-150", "190", "170"]
    assert apart.startswith("AllReduce of 64 MiB: rank 3 on node02")
    pulse = Pulse("node01", "running", collectives=tuple(told))
    assert row in watch_text("j", [pulse], [], groups) and collective_lines([]) == []
    assert watch_document("j", [pulse], [], groups)["collectives"]
    assert "nothing yet" in watch_text("j", [Pulse("node01", "running", inspected=True)], [])
    assert "Inspector" not in watch_text("j", [Pulse("node01", "running")], [])
    job = Job("j", JobState.RUNNING, ("node01", "node02"), "t.py", (), 2, (), collectives=tuple(told))
    (sample,) = [text for text in jobs_metrics([job], time_s=1e9).splitlines() if 'rank="3"' in text]
    assert sample.startswith("nodectl_job_collective_bandwidth_bytes_per_second{") and sample.endswith(
        " 150000000000.0"
    )

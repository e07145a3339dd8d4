"""What is read of a rank's trace: interval arithmetic, a hostile or huge file, the parts of a step."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.payload.jobs import traces as intervals
from nodectl.payload.jobs.chrome_trace import TraceError, read_events
from nodectl.payload.jobs.traces import summarize
from tests.payload.traces import event, gpu_events, write

_SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def points(spans: list[tuple[int, int]] | intervals.Intervals) -> set[int]:
    return {at for begin, end in spans for at in range(int(begin), int(end))}


def joined(spans: list[tuple[int, int]]) -> intervals.Intervals:
    return intervals.union([(float(begin), float(end)) for begin, end in spans])


@given(_SPANS, _SPANS, st.tuples(st.integers(0, 40), st.integers(0, 40)))
def test_sets_of_intervals_are_sets_of_points(one: Any, other: Any, window: tuple[int, int]) -> None:
    first, second = joined(one), joined(other)
    assert points(first) == points(one) and all(a[1] < b[0] for a, b in pairwise(first))
    assert intervals.length(first) == len(points(one))
    assert points(intervals.common(first, second)) == points(one) & points(other)
    assert points(intervals.without(first, second)) == points(one) - points(other)
    assert points(intervals.within(first, *window)) == points(one) & points([window])


def test_the_time_of_a_gpu_step_is_parted(tmp_path: Path) -> None:
    told = summarize(read_events(str(write(tmp_path / "0.json.gz", gpu_events()))))
    assert told["device"] == "gpu"
    assert [step["number"] for step in told["steps"]] == [1, 2]
    for step in told["steps"]:
        assert (step["step_us"], step["collectives_us"]) == (1000, 400)
        assert step["parts_us"] == {"compute": 500, "copy": 50, "communication": 250, "loading": 50, "idle": 150}


def test_the_time_of_a_cpu_step_is_parted(tmp_path: Path) -> None:
    rows = [
        ("user_annotation", "ProfilerStep#4", 0, 1000, 1),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 100, 1),
        ("cpu_op", "aten::stack", 50, 50, 1),  # of the loading
        ("cpu_op", "aten::linear", 150, 100, 1),
        ("cpu_op", "aten::addmm", 160, 80, 1),  # within the linear
        ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 300, 200, 1),
        ("cpu_op", "aten::mm", 320, 100, 1),
        ("cpu_op", "c10d::allreduce_", 430, 60, 1),
        ("user_annotation", "gloo:all_reduce", 400, 400, 9),  # 20 us of it beside the mm
        ("user_annotation", "Optimizer.step#AdamW.step", 850, 100, 1),
        ("cpu_op", "aten::lerp_", 860, 40, 1),
    ]
    events = [event(kind, name, begin, duration, thread) for kind, name, begin, duration, thread in rows]
    told = summarize(read_events(str(write(tmp_path / "0.json.gz", events))))
    assert told["device"] == "cpu"
    assert told["steps"] == [
        {
            "number": 4,
            "step_us": 1000,
            "collectives_us": 400,
            "parts_us": {
                "loading": 100, "optimizer": 40, "backward": 100, "forward": 100, "communication": 380, "idle": 280,
            },
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no Chrome trace"),
        ("{}", "no Chrome trace"),
        ('{"traceEvents": [', "breaks off"),
        ('{"traceEvents": [' + "[" * 200_000, "too deep"),
        ('{"traceEvents": ["' + "x" * (3 << 20), "cannot be read"),
        ('{"traceEvents": [{"ph": "X", "ts": NaN, "dur": 1}]}', "nan"),
        ('{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1e999}]}', "inf"),
        ('{"traceEvents": []}', "marks no steps"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "0.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        summarize(read_events(str(path)))


@pytest.mark.slow
def test_a_packed_bomb_ends_at_the_limit_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "0.json.gz"
    one = json.dumps(event("kernel", "gemm", 1, 1)) + ","
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write('{"traceEvents": [')
        for _ in range(60):
            file.write(one * 2000)
    tracemalloc.start()
    with pytest.raises(TraceError, match="more than 8 MiB"):
        for _ in read_events(str(path), 8 << 20):
            pass
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 24 << 20

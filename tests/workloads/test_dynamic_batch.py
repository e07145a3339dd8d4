"""The rule of the dynamic batch on series of throughputs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nodectl.workloads.dynamic_batch import DynamicBatch, check
from nodectl.workloads.settings import Settings


def batches(readings: Sequence[float], **options: int) -> list[int]:
    """The batch after each reading."""
    dynamic = DynamicBatch(Settings(**options))  # type: ignore[arg-type]  # all are numbers
    found = []
    for reading in readings:
        dynamic.update(reading)
        found.append(dynamic.batch)
    return found


def test_nothing_changes_before_a_whole_window_and_one() -> None:
    assert batches([100, 200, 200, 200, 200]) == [1024] * 5
    assert batches([100, 200, 200, 200, 200, 200]) == [1024] * 5 + [2048]


@pytest.mark.parametrize(
    ("after", "batch"),
    [(110, 1024), (110.1, 2048), (90, 1024), (89.9, 512), (100, 1024)],
)
def test_it_takes_more_than_ten_percent_of_the_reading_before_the_window(after: float, batch: int) -> None:
    assert batches([100, *[after] * 5])[-1] == batch


def test_it_stays_within_its_bounds() -> None:
    rising = [1.2**step for step in range(30)]
    assert max(batches(rising)) == batches(rising)[-1] == 8192
    assert min(batches(rising[::-1])) == batches(rising[::-1])[-1] == 256
    odd = {"dynamic_start": 300, "dynamic_min": 200, "dynamic_max": 500}
    assert batches(rising, **odd)[-1] == 500 and batches(rising[::-1], **odd)[-1] == 200


def test_a_change_is_said_with_its_reason_and_the_learning_rate() -> None:
    dynamic = DynamicBatch(Settings())
    said = [dynamic.update(reading) for reading in [100, *[120] * 5]]
    assert said[:-1] == [""] * 5
    assert said[-1] == (
        "batch 1024 -> 2048 a rank: 120.0 samples/s on average of the last 5, 100.0 before (+20.0 %); learning rate x 2"
    )
    # at its bound there is nothing to say
    top = DynamicBatch(Settings(dynamic_max=1024))
    assert [top.update(reading) for reading in [100, *[120] * 5]] == [""] * 6


@pytest.mark.parametrize(("scaling", "factor"), [("linear", 4), ("sqrt", 2), ("none", 1)])
def test_the_learning_rate_follows(scaling: str, factor: float) -> None:
    dynamic = DynamicBatch(Settings(dynamic_lr=scaling))
    dynamic.batch = 4096
    assert dynamic.lr_factor == factor


def test_a_resumed_one_decides_as_the_whole_one() -> None:
    series = [100, 120, 150, 150, 160, 170, 90, 80, 70, 60, 50, 50, 50, 50, 70, 90]
    for cut in range(len(series)):
        first = DynamicBatch(Settings())
        for reading in series[:cut]:
            first.update(reading)
        second = DynamicBatch(Settings())
        second.load(first.state())
        for reading in series[cut:]:
            second.update(reading)
        assert second.batch == batches(series)[-1]
    assert len(set(batches(series))) > 2


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"dynamic_start": 128}, "--dynamic-start 128 is not between --dynamic-min 256"),
        ({"dynamic_max": 512}, "and --dynamic-max 512"),
        ({"dynamic_window": 0}, "--dynamic-window 0: at least 1"),
    ],
)
def test_numbers_that_contradict_are_refused(given: dict[str, int], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        check(replace(Settings(dynamic_batch=True), **given))  # type: ignore[arg-type]  # all are numbers

"""What is said of the time: nothing while it is right, and within a quarter of the truth after the first part."""

import pytest

from nodectl.common.units import time_text
from nodectl.probes.schedule import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def paced(parts: int, planned_s: float | None) -> tuple[Pace, Clock, list[str]]:
    clock, said = Clock(), list[str]()
    return Pace("x", parts, said.append, planned_s, clock), clock, said


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (0.4, "0 s"),
        (99.4, "99 s"),
        (107, "1 min 50 s"),
        (599, "10 min"),
        (3900, "1 h 5 min"),
    ],
)
def test_a_time_as_text(time_s: float, text: str) -> None:
    assert time_text(time_s) == text


def test_it_is_right_after_the_first_part() -> None:
    """14 s were announced for what takes 108."""
    pace, clock, said = paced(6, 14.0)
    clock.now += 18
    pace.done(1)
    assert said == ["x: about 90 s more, 1 min 50 s in all"]
    clock.now += 18
    pace.done(2)
    assert len(said) == 1
    # it becomes slower
    clock.now += 40
    pace.done(3)
    assert said[1] == "x: about 76 s more, 2 min 30 s in all"

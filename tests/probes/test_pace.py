"""What is said of the time: nothing while it is right, and within a quarter of the truth after the first part."""

import pytest

from nodectl.common.units import time_text
from nodectl.probes.schedule import Pace


@pytest.mark.parametrize(
    ("time_s", "text"), [(0.4, "0 s"), (99.4, "99 s"), (107, "1 min 50 s"), (599, "10 min"), (3900, "1 h 5 min")]
)
def test_a_time_as_text(time_s: float, text: str) -> None:
    assert time_text(time_s) == text


def test_it_is_right_after_the_first_part() -> None:
    """14 s were announced for what takes 108."""
    said: list[str] = []
    now_s = 100.0
    pace = Pace("x", 6, said.append, 14.0, lambda: now_s)
    now_s += 18
    pace.done(1)
    assert said == ["x: about 90 s left"]
    now_s += 18
    pace.done(2)
    assert len(said) == 1
    # it becomes slower
    now_s += 40
    pace.done(3)
    assert said[1] == "x: about 76 s left"

"""What is said of the time: nothing while it is right, and within a quarter of the truth after the first part."""

import re
import time

import pytest

from nodectl.common.units import time_text
from nodectl.probes.nccl.probe import Forecast
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
        (45, "45 s"),
        (99.4, "99 s"),
        (107, "1 min 50 s"),
        (120, "2 min"),
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


SIZES = (1 << 20, 64 << 20)
# measured over gloo at 1 Gbit/s, seconds of one operation of each size
GLOO = {
    "all_reduce": (0.017, 0.85),
    "all_gather": (0.007, 0.53),
    "reduce_scatter": (0.014, 0.99),
    "all_to_all": (0.006, 0.65),
    "broadcast": (0.017, 1.67),
    "sendrecv": (0.009, 0.58),
}


def times(collective: str, size: int, operation_s: float) -> dict[str, object]:
    return {"event": "times", "rank": 0, "collective": collective, "asked_bytes": size, "seconds": [operation_s] * 5}


def took_s(operation_s: float) -> float:
    """Of a case: five repetitions, and what is beside them."""
    return 5 * max(0.05, operation_s) + 3 * operation_s + 0.2


def test_collectives_that_were_not_measured_yet_take_what_the_others_took() -> None:
    """11 s were announced; each word after the first collective is within a quarter of what is left to come."""
    cases = [(name, size) for name in GLOO for size in SIZES]
    pace, clock, said = paced(1, 11.0)
    forecast = Forecast(cases, 5, 0.05, pace)
    whole_s = 8 + sum(took_s(each) for both in GLOO.values() for each in both)
    clock.now += 8
    forecast.add({"event": "ready", "rank": 0})
    for name, both in GLOO.items():
        for size, operation_s in zip(SIZES, both, strict=True):
            clock.now += took_s(operation_s)
            forecast.add(times(name, size, operation_s))
    told = [int(match[1]) for line in said if (match := re.search(r"(\d+) s in all", line))]
    assert told and all(abs(each - whole_s) < 0.25 * whole_s for each in told), (told, whole_s)


def test_what_a_backend_lacks_is_not_waited_for() -> None:
    pace, clock, said = paced(1, 1.0)
    forecast = Forecast([("all_reduce", 1 << 20), ("all_to_all", 1 << 20)], 5, 1.0, pace)
    forecast.add({"event": "unsupported", "rank": 0, "collective": "all_to_all"})
    clock.now += 5
    forecast.add(times("all_reduce", 1 << 20, 0.5))
    assert said == []


def test_a_budget_bounds_what_is_said() -> None:
    """1 MiB to 8 GiB over a slow network would take two hours: there is a minute."""
    sizes = [1 << 20, 64 << 20, 8 << 30]
    pace, clock, said = paced(1, 10.0)
    forecast = Forecast([("all_reduce", size) for size in sizes], 5, 0.05, pace, time.monotonic() + 60)
    for size, operation_s in ((sizes[0], 0.017), (sizes[1], 0.85)):
        clock.now += took_s(operation_s)
        forecast.add(times("all_reduce", size, operation_s))
    assert said and all("h" not in line.split("about")[1] for line in said)
    assert int(re.findall(r"about (\d+) s more", said[-1])[0]) <= 60

"""Which of two measurements of the same host counts."""

import pytest

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.again import best_run, better, usual_run
from nodectl.probes.base import ProbeResult


def one(host: str, kernel: str, value: float, *sustained: float) -> Measurement:
    conditions: dict[str, object] = {"kernel": kernel, "sustained": list(sustained)}
    return Measurement("memory", (host,), value, "GB/s", host, None, None, conditions)


@pytest.mark.parametrize(
    ("runs", "best", "usual"), [((3.0, 5.0, 4.0), 5.0, 4.0), ((), 9.0, 9.0)], ids=["runs", "the value stands for them"]
)
def test_runs(runs: tuple[float, ...], best: float, usual: float) -> None:
    measurement = one("a", "copy", 9.0, *runs)
    assert (best_run(measurement, "sustained"), usual_run(measurement, "sustained")) == (best, usual)
    assert best_run(measurement, "none such") == 9.0


def test_each_series_keeps_what_was_better() -> None:
    first = ProbeResult((one("a", "copy", 5.0), one("a", "triad", 7.0), one("b", "copy", 6.0)))
    again = ProbeResult(
        (one("a", "triad", 6.0), one("a", "copy", 8.0)), (Finding("a", "memory", Status.UNKNOWN, actual="late"),)
    )
    kept = better(first, again, "kernel")
    assert [each.value for each in kept.measurements] == [8.0, 7.0, 6.0]
    assert [each.actual for each in kept.findings] == ["late"]


def test_runs_decide_where_they_are_named() -> None:
    first, again = one("a", "copy", 9.0, 2.0, 3.0), one("a", "copy", 8.0, 4.0, 5.0)
    assert better(ProbeResult((first,)), ProbeResult((again,)), "kernel", "sustained").measurements == (again,)
    assert better(ProbeResult((first,)), ProbeResult((again,)), "kernel").measurements == (first,)

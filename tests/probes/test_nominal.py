"""All slow alike: no host stands out, and the links' own rate says it."""

import pytest

from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.nominal import all_short, link_rate_gbit_s

PAIRS = [(a, b) for a in ("n1", "n2", "n3") for b in ("n1", "n2", "n3") if a != b]


def flows(value: float, *rates: float | None, **more: object) -> list[Measurement]:
    given = {"rate_gbit_s": list(rates), **more}
    return [
        Measurement("tcp", pair, value * (1 + 0.01 * number), "Gbit/s", "", None, None, given)
        for number, pair in enumerate(PAIRS)
    ]


def test_links_that_all_reach_a_tenth_are_said() -> None:
    (finding,) = all_short("tcp", flows(0.94, 10.0, 10.0), 1)
    assert (finding.status, finding.subject, finding.hosts) == (Status.WARNING, "all are slow", ("n1", "n2", "n3"))
    assert "all 6 directions between n[1-3] reach 940 Mbit/s to 987 Mbit/s: 10 % of the links' rate" in finding.actual
    assert finding.kind == "" and "nodectl_link_rate" in finding.remedy


@pytest.mark.parametrize(
    "measurements",
    [
        flows(9.4, 10.0, 10.0),
        flows(0.94, 100.0, 1.0),
        flows(0.94, None, 10.0),
        flows(0.94, 10.0, 10.0)[:1],
    ],
)
def test_nothing_is_said_of_links_that_are_well_or_not_known(measurements: list[Measurement]) -> None:
    assert all_short("tcp", measurements, 1) == ()


@pytest.mark.parametrize(
    ("said", "speed_mbit", "rate"),
    [(None, 25000, 25.0), ("1gbit", 25000, 1.0), ("100 Mbit/s", None, 0.1), (40, None, 40.0), ("fast", None, None)],
)
def test_the_rate_of_a_link(said: object, speed_mbit: int | None, rate: float | None) -> None:
    host = Host("n1", "n1", variables={} if said is None else {"nodectl_link_rate": said})
    assert link_rate_gbit_s(host, speed_mbit) == (None if rate is None else pytest.approx(rate))

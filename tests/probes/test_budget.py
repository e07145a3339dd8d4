"""What fits into the time that there is, what is given up for it, and what is refused."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.probes.base import Amount, Note, ProbeOptions, ProbeResult
from nodectl.probes.budget import BudgetError, fitted
from nodectl.probes.registry import AnyProbe
from nodectl.probes.series import run_probes
from tests.probes.declared import wanted_of

WISH, LEAST = Amount(3, 4.0, 7), Amount(1, 0.5)
HOSTS = (Host("a", "192.0.2.1"),)


def cost(amount: Amount) -> float:
    return amount.rounds * amount.repetitions * amount.duration_s


@pytest.mark.parametrize(
    ("time_s", "amount", "trimmed"),
    [
        (None, WISH, ()),
        (84, WISH, ()),
        (83, Amount(2, 4.0, 7), ("repetitions 3 -> 2",)),
        (30, Amount(1, 4.0, 7), ("repetitions 3 -> 1",)),
        (14, Amount(1, 2.0, 7), ("repetitions 3 -> 1", "duration_s 4 -> 2")),
        (3.5, Amount(1, 0.5, 7), ("repetitions 3 -> 1", "duration_s 4 -> 0.5")),
        (1.6, Amount(1, 0.5, 3), ("repetitions 3 -> 1", "duration_s 4 -> 0.5", "rounds 7 -> 3")),
        (0.5, Amount(1, 0.5, 1), ("repetitions 3 -> 1", "duration_s 4 -> 0.5", "rounds 7 -> 1")),
    ],
)
def test_the_most_that_fits(time_s: float | None, amount: Amount, trimmed: tuple[str, ...]) -> None:
    assert fitted("tcp", WISH, LEAST, cost, time_s) == (amount, trimmed)


@pytest.mark.parametrize("time_s", [0.4, 0.0, -3.0])
def test_less_than_the_least_is_refused_and_says_what_it_takes(time_s: float) -> None:
    with pytest.raises(BudgetError, match="the tcp probe takes at least 10 s") as refused:
        fitted("tcp", WISH, Amount(1, 10.0), cost, time_s)
    assert "--budget" in refused.value.remedy and isinstance(refused.value, UsageError)


def probes(*least_s: float) -> tuple[list[tuple[AnyProbe, ProbeOptions]], list[float]]:
    """Probes that need so much, and what each was left."""
    lefts: list[float] = []

    def probe(needs_s: float) -> Callable[..., ProbeResult]:
        def run(transport: Any, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
            assert options.ends_at is not None
            lefts.append(options.ends_at - time.monotonic())
            fitted("x", Amount(1, needs_s), Amount(1, needs_s), cost, lefts[-1])
            return ProbeResult((Measurement("x", ("a",), needs_s, "s"),))

        return run

    return [wanted_of(f"p{number}", probe(each)) for number, each in enumerate(least_s)], lefts


def run(wanted: Sequence[tuple[AnyProbe, ProbeOptions]], budget_s: float) -> ProbeResult:
    nowhere: Any = None
    return run_probes(nowhere, HOSTS, wanted, time.monotonic() + budget_s, lambda _: None)


def test_each_probe_gets_its_share() -> None:
    wanted, lefts = probes(1, 1, 1)
    assert len(run(wanted, 30).measurements) == 3
    assert lefts == pytest.approx([10, 15, 30], abs=0.5)


def test_before_anything_is_measured_it_is_an_error() -> None:
    with pytest.raises(BudgetError):
        run(probes(100, 1)[0], 30)

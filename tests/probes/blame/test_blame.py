"""Which host is named where pairs lose packets or fail; and where none can be."""

from collections.abc import Mapping

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import path_finding
from nodectl.probes.blame.findings import blame

RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
BOTH_WAYS = [*RING, *((y, x) for x, y in RING)]
Rates = Mapping[tuple[str, str], float]


def measured(rates: Rates, retransmits: Mapping[tuple[str, str], int] | None = None) -> list[Measurement]:
    return [
        Measurement(
            "tcp",
            pair,
            rate,
            "Gbit/s",
            " -> ".join(pair),
            conditions={"retransmits": (retransmits or {}).get(pair, 0), "duration_s": 1, "repetitions": 1},
        )
        for pair, rate in rates.items()
    ]


def fleet(**slow: float) -> dict[tuple[str, str], float]:
    """9 to 11 Gbit/s everywhere, but what `to_X` and `from_X` say."""
    rates = {}
    for number, (sender, receiver) in enumerate(BOTH_WAYS):
        rates[sender, receiver] = slow.get(f"to_{receiver}", slow.get(f"from_{sender}", 9 + number % 3))
    return rates


def named(found: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(each.host, each.subject) for each in found]


def test_a_lossy_host_is_the_one_that_all_send_again_to() -> None:
    again = {pair: 5000 if pair[1] == "c" else 300 for pair in BOTH_WAYS}
    found = blame(measured(fleet(to_c=2.0), again), [])
    assert named(found) == [("c", "loses packets")] and found[0].status is Status.FAILED


def test_loss_everywhere_names_nobody() -> None:
    assert blame(measured(fleet(to_c=2.0), dict.fromkeys(BOTH_WAYS, 20_000)), []) == ()


def test_the_host_of_all_broken_pairs_is_named() -> None:
    rates = {pair: rate for pair, rate in fleet().items() if "c" not in pair}
    broken = [path_finding("tcp", "b", "c", "cut"), path_finding("tcp", "c", "d", "cut")]
    assert named(blame(measured(rates), broken)) == [("c", "fails")]

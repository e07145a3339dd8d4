"""What an operator may type for a rate, a delay, a loss and a size."""

from collections.abc import Callable

import pytest

from nodectl.errors import UsageError
from nodectl.lab.spec import LabSpec, parse_delay, parse_loss, parse_rate, parse_size, show_delay, show_rate

GIVEN: dict[Callable[[str], float], dict[str, float]] = {
    parse_rate: {"1gbit": 10**9, "100Mbit": 10**8, "2.5g": 25 * 10**8, "10 Gbit/s": 10**10, "500kbit": 500_000},
    parse_delay: {"10ms": 0.01, "250us": 0.00025, "1s": 1.0, "0ms": 0.0},
    parse_loss: {"0.1%": 0.001, "5%": 0.05, "0.02": 0.02},
    parse_size: {"4G": 4 * 2**30, "512MiB": 512 * 2**20, "100mb": 100 * 2**20, "1.5g": 3 * 2**29},
}
REFUSED: dict[Callable[[str], float], tuple[str, ...]] = {
    parse_rate: ("fast", "1", "-1gbit", "1gbyte", "", "5tbit", "500kbps", "1 mbit; reboot"),
    parse_delay: ("10", "10 minutes", "11s", "ms"),
    parse_loss: ("100%", "1", "1ms", "x"),
    parse_size: ("63M", "4X", "G"),
}


@pytest.mark.parametrize("parse", GIVEN, ids=lambda parse: parse.__name__)
def test_a_text_is_its_value_or_is_refused_with_an_example(parse: Callable[[str], float]) -> None:
    assert {text: parse(text) for text in GIVEN[parse]} == pytest.approx(GIVEN[parse])
    for text in REFUSED[parse]:
        with pytest.raises(UsageError) as refused:
            parse(text)
        assert refused.value.remedy, text


def test_what_is_shown_can_be_read_again() -> None:
    for rate_bits in (10**9, 25 * 10**8, 10**8, 1_500_000):
        assert parse_rate(show_rate(rate_bits)) == rate_bits
    for delay_s in (0.01, 0.00025, 1.5):
        assert parse_delay(show_delay(delay_s)) == pytest.approx(delay_s)


@pytest.mark.parametrize("hosts", [0, -1, 1001])
def test_impossible_sizes_are_refused(hosts: int) -> None:
    with pytest.raises(UsageError):
        LabSpec(hosts=hosts)

"""What an operator may type for a rate, a delay, a loss and a size."""

import pytest

from nodectl.errors import UsageError
from nodectl.lab.spec import LabSpec, parse_delay, parse_loss, parse_rate, parse_size, show_delay, show_rate


@pytest.mark.parametrize(
    ("text", "rate_bits"),
    [("1gbit", 10**9), ("100Mbit", 10**8), ("2.5g", 25 * 10**8), ("10 Gbit/s", 10**10), ("500kbit", 500_000)],
)
def test_rates(text: str, rate_bits: int) -> None:
    assert parse_rate(text) == rate_bits


@pytest.mark.parametrize("text", ["fast", "1", "-1gbit", "1gbyte", "", "5tbit", "500kbps", "1 mbit; reboot"])
def test_bad_rates_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_rate(text)
    assert refused.value.remedy


@pytest.mark.parametrize(("text", "delay_s"), [("10ms", 0.01), ("250us", 0.00025), ("1s", 1.0), ("0ms", 0.0)])
def test_delays(text: str, delay_s: float) -> None:
    assert parse_delay(text) == pytest.approx(delay_s)


@pytest.mark.parametrize("text", ["10", "10 minutes", "11s", "ms"])
def test_bad_delays_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_delay(text)


@pytest.mark.parametrize(("text", "share"), [("0.1%", 0.001), ("5%", 0.05), ("0.02", 0.02)])
def test_losses(text: str, share: float) -> None:
    assert parse_loss(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["100%", "1", "1ms", "x"])
def test_bad_losses_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_loss(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("4G", 4 * 2**30), ("512MiB", 512 * 2**20), ("100mb", 100 * 2**20), ("1.5g", 3 * 2**29)]
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["63M", "4X", "G"])
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


def test_what_is_shown_can_be_read_again() -> None:
    for rate_bits in (10**9, 25 * 10**8, 10**8, 1_500_000):
        assert parse_rate(show_rate(rate_bits)) == rate_bits
    for delay_s in (0.01, 0.00025, 1.5):
        assert parse_delay(show_delay(delay_s)) == pytest.approx(delay_s)


def test_names_are_as_wide_as_the_last_one_needs() -> None:
    assert LabSpec(hosts=3).names() == ("node01", "node02", "node03")
    assert LabSpec(hosts=120).names()[0] == "node001"


@pytest.mark.parametrize("hosts", [0, -1, 1001])
def test_impossible_sizes_are_refused(hosts: int) -> None:
    with pytest.raises(UsageError):
        LabSpec(hosts=hosts)

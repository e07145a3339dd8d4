"""Options as an operator writes them."""

import pytest

from nodectl.probes.options import Sizes, duration, rounds, sweep

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1MiB,64MiB", Sizes((MIB, 64 * MIB))),
        ("1KiB..8KiB", Sizes((KIB, 2 * KIB, 4 * KIB, 8 * KIB))),
        ("4KiB..20KiB", Sizes((4 * KIB, 8 * KIB, 16 * KIB, 20 * KIB))),
        ("1KiB..2KiB,1MiB", Sizes((KIB, 2 * KIB, MIB))),
    ],
)
def test_sizes(text: str, expected: Sizes) -> None:
    assert sweep(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "not a size"),
        ("max..1MiB", "not a size"),
        ("1MiB..1KiB", "1 ?MiB..1 ?KiB begins with the larger"),
        ("1KiB..max", "not a size"),
        ("1KiB..2KiB..4KiB", "not a size"),
    ],
)
def test_what_is_no_size(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sweep(text)


@pytest.mark.parametrize(("text", "expected"), [("all", 0), ("1", 1), ("10", 10)])
def test_rounds(text: str, expected: int) -> None:
    assert rounds(text) == expected


@pytest.mark.parametrize("text", ["0", "-1", "ten", "1.5", "", "1e3"])
def test_what_is_no_number_of_rounds(text: str) -> None:
    with pytest.raises(ValueError, match="write 10, or all"):
        rounds(text)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds

"""Counters against their last reading."""

import pytest

from nodectl.checks.counters import Previous, growth

BEFORE = Previous(1000.0, "boot1", {"a": 5, "end": 255})


@pytest.mark.parametrize(
    ("previous", "boot", "key", "value", "last", "by", "stuck", "said"),
    [
        (None, "boot1", "a", 7, None, None, False, "first reading"),
        (BEFORE, "boot1", "a", 7, None, 2, False, "2 more in 2.0 h, 7 in all"),
        (BEFORE, "boot1", "a", 5, None, 0, False, "0 more"),
        (BEFORE, "boot1", "a", 3, None, None, False, "reset"),
        (BEFORE, "boot2", "a", 9, None, None, False, "booted"),
        (BEFORE, None, "a", 9, None, None, False, "booted"),
        (BEFORE, "boot1", "b", 9, None, None, False, "first reading"),
        (BEFORE, "boot1", "end", 255, 255, 0, True, "proves nothing"),
        (BEFORE, "boot1", "a", 255, 255, 250, False, "250 more"),
        (None, "boot1", "a", 255, 255, None, True, "proves nothing"),
    ],
)
def test_growth(
    previous: Previous | None,
    boot: str | None,
    key: str,
    value: int,
    last: int | None,
    by: int | None,
    stuck: bool,
    said: str,
) -> None:
    grown = growth(previous, boot, 8200.0, key, value, last)
    assert (grown.by, grown.stuck) == (by, stuck) and said in grown.text

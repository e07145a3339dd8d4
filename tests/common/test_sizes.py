"""Sizes read and shown, and which way units point."""

import pytest

from nodectl.common.units import GIB, KIB, MIB, TIB, format_size, lower_is_better, parse_size


@pytest.mark.parametrize(
    ("unit", "lower"),
    [
        *((unit, False) for unit in ("GB/s", "Gbit/s", "TFLOP/s", "samples/s", "files/s")),
        *((unit, True) for unit in ("us", "µs", "ms", "s")),
        *((unit, None) for unit in ("", "furlongs", "W", "C")),
    ],
)
def test_units(unit: str, lower: bool | None) -> None:
    assert lower_is_better(unit) is lower


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1500", 1500),
        ("512B", 512),
        ("64MiB", 64 * MIB),
        (" 64 mib ", 64 * MIB),
        ("8G", 8 * GIB),
        ("4GB", 4 * GIB),
        ("1.5 KiB", 1536),
        ("2T", 2 * TIB),
        *((text, None) for text in ("", "MiB", "-1", "1e3", "64 MiBs", "1.", "1,5G", "64 B/s", "9" * 19)),
    ],
)
def test_sizes_are_read(text: str, size_bytes: int | None) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("size_bytes", "exact"),
    [(0, "0 B"), (1000, "1000 B"), (KIB, "1 KiB"), (1500, "1500 B"), (64 * MIB, "64 MiB"), (GIB + MIB, "1025 MiB")],
)
def test_sizes_are_shown(size_bytes: int, exact: str) -> None:
    assert format_size(size_bytes) == exact

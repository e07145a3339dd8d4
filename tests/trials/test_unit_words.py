"""Which way units point."""

import pytest

from nodectl.model.units import lower_is_better


@pytest.mark.parametrize(
    ("unit", "lower"),
    [
        *((unit, False) for unit in ("GB/s", "Gbit/s", "TFLOP/s", "samples/s", "files/s", "IOPS")),
        *((unit, True) for unit in ("us", "µs", "ms", "s")),
        *((unit, None) for unit in ("", "furlongs", "W", "C")),
    ],
)
def test_units(unit: str, lower: bool | None) -> None:
    assert lower_is_better(unit) is lower

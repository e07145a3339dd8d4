"""At which sizes a verdict is taken."""

import pytest

from nodectl.common.units import MIB
from nodectl.probes.nccl.run import Case, NcclOptions, verdict_sizes
from nodectl.probes.options import Sizes


@pytest.mark.parametrize(
    ("measured", "asked", "large"),
    [
        ((1, 64), (1, 64), 64 * MIB),
        # ranks share a size evenly, so that a little may be missing
        ((1, 64), (1, 64.00001), 64 * MIB),
        ((1,), (1, 64), None),
        # more than half of the largest, and yet another size that was asked for
        ((64,), (64, 96), None),
    ],
)
def test_large_is_the_largest_that_was_asked_for(
    measured: tuple[float, ...], asked: tuple[float, ...], large: int | None
) -> None:
    cases = [Case("all_reduce", int(each * MIB), (0.1,), 1, 0) for each in measured]
    found = verdict_sizes(cases, NcclOptions(sizes=Sizes(tuple(int(each * MIB) for each in asked))), complete=True)
    assert [size for (_, size), word in found.items() if word == "large"] == ([large] if large else [])


@pytest.mark.parametrize(("complete", "large"), [(True, 16 * MIB), (False, None)])
def test_of_usual_sizes_the_largest_that_was_carried_is_large(complete: bool, large: int | None) -> None:
    cases = [Case("all_reduce", each * MIB, (0.1,), 1, 0) for each in (1, 16)]
    found = verdict_sizes(cases, NcclOptions(), complete=complete)
    assert [size for (_, size), word in found.items() if word == "large"] == ([large] if large else [])

"""Bus bandwidth: nccl-tests' factors and what it printed."""

import pytest

from nodectl.probes.nccl.models import bandwidth


@pytest.mark.parametrize(
    ("collective", "bus"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 1.0),
        ("sendrecv", 1.0),
    ],
)
def test_eight_ranks_move_a_gigabyte_in_a_second(collective: str, bus: float) -> None:
    found = bandwidth(collective, 10**9, 8, 1.0)
    assert (found.algbw_gb_s, found.busbw_gb_s) == (1.0, bus)

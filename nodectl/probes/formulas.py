"""Algorithm and bus bandwidth as nccl-tests defines them."""

from collections.abc import Callable
from dataclasses import dataclass

# busbw = algbw x factor(n): what the slowest link carries, whatever the number of ranks
_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
}
COLLECTIVES = tuple(_FACTORS)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Both in GB/s of 1e9 bytes."""

    algbw_gb_s: float
    busbw_gb_s: float


def bandwidth(collective: str, size_bytes: int, ranks: int, duration_s: float) -> Bandwidth:
    """Bandwidths of one operation.

    `size_bytes` is a rank's whole buffer: for all_gather what it ends with, for reduce_scatter and all_to_all what it
    starts with, so ranks times what each rank contributes to, or takes from, one other.
    """
    algbw_gb_s = size_bytes / duration_s / 1e9
    return Bandwidth(algbw_gb_s, algbw_gb_s * _FACTORS[collective](ranks))

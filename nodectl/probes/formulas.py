"""Algorithm and bus bandwidth as nccl-tests defines them."""

from dataclasses import dataclass

from nodectl.predict.collectives import BUS_FACTORS

# what the nccl probe runs
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
# nccl-tests' names of the same
_NAMES = {"alltoall": "all_to_all"}


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
    return Bandwidth(algbw_gb_s, algbw_gb_s * BUS_FACTORS[named(collective)](ranks))


def named(collective: str) -> str:
    """nccl-tests' name of a collective as it is called here."""
    return _NAMES.get(collective, collective)


def ranks_of(collective: str, algbw_gb_s: float, busbw_gb_s: float) -> int | None:
    """The number of ranks that a published row was taken on; None where the factor does not depend on it."""
    ratio = busbw_gb_s / algbw_gb_s
    factor = BUS_FACTORS[named(collective)]
    whole = factor(1 << 30)
    if factor(2) == whole:
        return None
    # both factors are whole * (n - 1) / n
    return round(1 / (1 - min(ratio / whole, 1 - 1e-9)))

"""Bus bandwidth by the probe's formulas beside what nccl-tests printed in published runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.nccl.nccl_tests import NcclTests, NcclTestsSide, parse_nccl_tests
from nodectl.probes.nccl.models import BUS_FACTORS, bandwidth, named

# a text without its program's name is told by its file's
_NAMED = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "alltoall", "reduce-old": "reduce"}
# below this so few digits are printed that they tell of no number of ranks
_ENOUGH_GB_S = 1.0


def collectives(folder: Path) -> dict[str, Any]:
    """How many values were computed again, from size, time and ranks, and those that differ by more than rounding."""
    count, wrong, left_out, files = 0, [], [], 0
    for path in sorted(folder.glob("nccl-tests-*.txt")):
        try:
            found = parse_nccl_tests(path.read_text())
        except ParseError as error:
            left_out.append(f"{path.name}: {error.message}")
            continue
        collective = found.collective or _by_name(path.stem) or _by_factor(found)
        ranks = _ranks(found, collective) if collective else None
        if collective is None or ranks is None:
            left_out.append(f"{path.name}: no row tells what was measured")
            continue
        files += 1
        for size, side in _sides(found):
            count += 1
            wrong += [f"{path.name}: {size} B: {text}" for text in _differences(collective, size, ranks, side)]
    return {"files": files, "values": count, "wrong": wrong, "left_out": left_out}


def _by_name(stem: str) -> str | None:
    return next((name for part, name in _NAMED.items() if part in stem), None)


def _by_factor(found: NcclTests) -> str | None:
    """Return the collective by whether there is a reduction, and by the factor between the bandwidths.

    all_gather and all_to_all have the same factor, so that the formula checked is the same.
    """
    fastest = _fastest(found)
    if fastest is None:
        return None
    factor = (fastest.busbw_gb_s or 0) / (fastest.algbw_gb_s or 1)
    reduces = any(row.redop not in (None, "none") for row in found.rows)
    if factor > 1:
        return "all_reduce" if reduces else None
    return "reduce_scatter" if reduces else "all_gather"


def _sides(found: NcclTests) -> Iterator[tuple[int, NcclTestsSide]]:
    for row in found.rows:
        for side in (row.out_of_place, row.in_place):
            if side is not None and side.time_us and side.algbw_gb_s is not None and side.busbw_gb_s is not None:
                yield row.size_bytes, side


def _ranks(found: NcclTests, collective: str) -> int | None:
    """Return the ranks as listed; if the list is missing or cut, as the fastest row's two figures tell."""
    if len(found.ranks) > 1:
        return len(found.ranks)
    fastest = _fastest(found)
    return ranks_of(collective, fastest.algbw_gb_s or 0, fastest.busbw_gb_s or 0) if fastest else None


def _fastest(found: NcclTests) -> NcclTestsSide | None:
    sides = [side for _, side in _sides(found) if (side.algbw_gb_s or 0) >= _ENOUGH_GB_S]
    return max(sides, key=lambda side: side.algbw_gb_s or 0, default=None)


def _differences(collective: str, size_bytes: int, ranks: int, side: NcclTestsSide) -> Iterator[str]:
    """Beyond what the printed digits of time and bandwidth can hide."""
    time_us, printed = side.time_us or 0.0, (side.algbw_gb_s or 0.0, side.busbw_gb_s or 0.0)
    own = bandwidth(collective, size_bytes, ranks, time_us * 1e-6)
    for name, value, told in zip(("algbw", "busbw"), (own.algbw_gb_s, own.busbw_gb_s), printed, strict=True):
        allowed = _half_digit(told) + value * _half_digit(time_us, is_time=True) / time_us
        if abs(value - told) > 1.01 * allowed:
            yield f"{name} {value:.4f} where {told} is printed, {collective} of {ranks} ranks in {time_us} us"


def _half_digit(value: float, *, is_time: bool = False) -> float:
    """Half of the last digit that was printed: two decimals, of a time the fewer the longer it is."""
    decimals = 2 if not is_time or value < 100 else 1 if value < 10_000 else 0
    return 0.5 * 10.0**-decimals


def ranks_of(collective: str, algbw_gb_s: float, busbw_gb_s: float) -> int | None:
    """Return the number of ranks of a published row; None if the factor does not depend on it."""
    ratio = busbw_gb_s / algbw_gb_s
    factor = BUS_FACTORS[named(collective)]
    whole = factor(1 << 30)
    if factor(2) == whole:
        return None
    # both factors are whole * (n - 1) / n
    return round(1 / (1 - min(ratio / whole, 1 - 1e-9)))

"""Bus bandwidth of collectives as nccl-tests defines it, and the most of it that links allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nodectl.probes.nccl.fleet import Group, Part, Route

# busbw = algbw x factor(ranks): what the slowest link carries, whatever the number of ranks
BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
    "gather": lambda ranks: (ranks - 1) / ranks,
    "scatter": lambda ranks: (ranks - 1) / ranks,
    "sendrecv": lambda ranks: 1.0,
}


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


_BITS = 8
# collectives of large messages that are rings, unless NCCL's switches or trees do them
_RINGS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that the links allow, in GB/s; `limit` is inside (a host) or network."""

    busbw_gb_s: float
    limit: str


def ceiling(
    collective: str, group: Group, backend: str, routes: Mapping[str, Route], algorithm: str | None = None
) -> Ceiling | None:
    """Return what the slowest links carry; None if no ring uses them, or not all of them are known."""
    alone, name = len(group.parts) == 1, (algorithm or "").upper()
    # NVLink's switch adds up, so that a rank sends its data once
    is_summed = alone and collective == "all_reduce" and name.startswith("NVLS")
    # a tree is a chain inside a host, and takes its links as often as a ring
    is_ring = backend != "nccl" or name in (("RING", "TREE", "") if alone else ("RING",))
    if collective not in _RINGS or group.ranks < 2 or not (is_ring or is_summed):
        return None
    times = 2 * (group.ranks - 1) / (group.ranks + 1) if is_summed else 1.0
    limits: list[Ceiling | None] = []
    for part in group.parts:
        route = routes.get(part.endpoint.name)
        inside = route.inside_gb_s if route and backend == "nccl" and not route.unknown else None
        if part.ranks > 1:
            limits.append(Ceiling(times * inside, "inside") if inside else None)
        if not alone:
            outside = _nics_gb_s(part, backend, route)
            limits.append(Ceiling(outside, "network") if outside else None)
    known = [limit for limit in limits if limit]
    return min(known, key=lambda limit: limit.busbw_gb_s) if len(known) == len(limits) else None


def _nics_gb_s(part: Part, backend: str, route: Route | None) -> float | None:
    if backend != "nccl":
        speed = part.endpoint.speed_mbit
        return speed / 1e3 / _BITS if speed else None
    if route is None or route.unknown:
        return None
    rates = [route.rates_gb_s.get(adapter, 0.0) for adapter in route.adapters]
    return sum(rates) if all(rates) else None

"""What models say of collectives: start-up time and bandwidth fitted over sizes, and the most that the links allow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from nodectl.common.units import format_size_rounded, format_value
from nodectl.errors import UsageError
from nodectl.model.measurement import Measurement
from nodectl.predict.alpha_beta import AlphaBeta, fit_alpha_beta
from nodectl.predict.collectives import ExpectedBusBandwidth, NodeLinks, expected_busbw
from nodectl.probes.nccl.groups import Group, Part
from nodectl.probes.nccl.routes import Route

_BITS = 8
LEAST_SIZES = 3


def fits(measurements: Sequence[Measurement]) -> dict[str, AlphaBeta]:
    """Return, by collective, where three sizes were measured and larger ones take longer."""
    series: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        series[str(measurement.conditions["collective"])].append(measurement)
    by_collective = {}
    for collective, own in series.items():
        samples = [(size(measurement), time_us / 1e6) for measurement in own for time_us in _times_us(measurement)]
        if len({size for size, _ in samples}) < LEAST_SIZES:
            continue
        try:
            by_collective[collective] = fit_alpha_beta(samples)
        except UsageError:
            continue
    return by_collective


def with_fits(measurements: Sequence[Measurement]) -> list[Measurement]:
    """The fit of its collective in each measurement."""
    by_collective = fits(measurements)
    return [measurement.with_conditions(**_fit(by_collective, measurement)) for measurement in measurements]


def fit_lines(by_collective: Mapping[str, AlphaBeta], hosts: str) -> list[str]:
    """A line for the operator for each collective: start-up time, bandwidth, and how well the fit holds."""
    return [
        f"nccl: {hosts}: {collective}: {format_value(fit.alpha_s * 1e6, 'us')} to start, then "
        f"{format_value(fit.bandwidth_gb_s, 'GB/s')}; half of that at {format_size_rounded(round(fit.half_size_bytes))}"
        f"; the sizes miss it by {100 * fit.error:.2g} %"
        for collective, fit in by_collective.items()
    ]


def size(measurement: Measurement) -> int:
    """The message size of a measurement in bytes."""
    value = measurement.conditions["size_bytes"]
    return value if isinstance(value, int) else 0


def ceiling(
    collective: str, group: Group, backend: str, routes: Mapping[str, Route], algorithm: str | None = None
) -> ExpectedBusBandwidth | None:
    """The most that the links allow; None where not all of them are known."""
    nodes = [_links(part, backend, routes.get(part.ready.name), len(group.parts)) for part in group.parts]
    known = [node for node in nodes if node is not None]
    if len(known) < len(nodes) or group.ranks < 2:
        return None
    try:
        # gloo's all_reduce of large messages is a ring
        return expected_busbw(collective, known, algorithm=algorithm if backend == "nccl" else "RING")
    except UsageError:
        return None


def _links(part: Part, backend: str, route: Route | None, hosts: int) -> NodeLinks | None:
    if backend != "nccl":
        # within a host gloo copies memory, and no link says how fast
        speed = part.ready.speed_mbit
        return NodeLinks(1, 0.0, (speed / 1e3 / _BITS,)) if speed and part.ranks == 1 else None
    if route is None or route.unknown:
        return None
    if part.ranks > 1 and route.inside_gb_s is None:
        return None
    chosen = part.adapter.split(",") if part.adapter else route.adapters
    nics = tuple(route.rates_gb_s[adapter] for adapter in chosen if adapter in route.rates_gb_s)
    if hosts > 1 and (not nics or len(nics) < len(chosen)):
        return None
    return NodeLinks(part.ranks, route.inside_gb_s or 0.0, nics)


def _fit(by_collective: Mapping[str, AlphaBeta], measurement: Measurement) -> dict[str, object]:
    fit = by_collective.get(str(measurement.conditions["collective"]))
    if fit is None:
        return {}
    return {
        "alpha_us": fit.alpha_s * 1e6,
        "alpha_interval_us": [fit.alpha_interval.low * 1e6, fit.alpha_interval.high * 1e6],
        # of the whole buffer over the time; times the bus factor it is the bus bandwidth
        "fit_algbw_gb_s": fit.bandwidth_gb_s,
        "fit_error": fit.error,
        "fit_worst": fit.worst,
    }


def _times_us(measurement: Measurement) -> list[float]:
    times_us = measurement.conditions.get("times_us")
    return [float(event) for event in times_us] if isinstance(times_us, list) else []

"""One run of a group: what it is given, its measurements, and findings of what could not be measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from nodectl.common.units import MIB
from nodectl.facts.parsers.nccl.nccl_log import NcclChoice
from nodectl.model.measurement import Measurement
from nodectl.probes.base import Amount, ProbeOptions, spread
from nodectl.probes.nccl.fleet import NAME, Group, Route, common
from nodectl.probes.nccl.models import COLLECTIVES, bandwidth, ceiling
from nodectl.probes.nccl.proof import HostLog, conditions
from nodectl.probes.options import Choice, Sizes, Text, names, option, sweep

# a repetition of small operations holds as many as fit into its time
USUAL = Amount(repetitions=5, duration_s=0.05)
# a link class that no floor of GPUs speaks of
_NO_GPUS = "none"


SCOPES = ("all", "node", "pairs")


@dataclass(frozen=True, slots=True)
class NcclOptions(ProbeOptions):
    """`collectives` empty are all of them; `sizes` are of a rank's buffer."""

    sizes: Sizes = option(
        Sizes((MIB, 64 * MIB), usual=True),
        Text("SIZE,…|A..B", sweep),
        "Message sizes; A..B by powers of two.",
        shown="1MiB,64MiB; of GPUs also those of floors, without GPUs as far as a second carries them",
    )
    collectives: tuple[str, ...] = option((), Text("NAME[,NAME…]", names), f"{', '.join(COLLECTIVES)}.", shown="all")
    scope: str = option(
        "all",
        Choice(SCOPES),
        "All hosts together, each by itself, or pairs.",
    )

    @property
    def by_itself(self) -> bool:
        """Return whether each host is measured without the others."""
        return self.scope == "node"


@dataclass(frozen=True, slots=True)
class Run:
    """How a fleet's groups are measured."""

    backend: str
    options: NcclOptions
    routes: Mapping[str, Route] = field(default_factory=dict)
    # how long one operation, and meeting at the start, may take before a rank gives up on the others
    timeout_s: float = 120.0
    # by collective, sizes besides those of the options
    more: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def collectives(self) -> tuple[str, ...]:
        """In the order in which they run, each once."""
        return tuple(dict.fromkeys(self.options.collectives)) or COLLECTIVES

    def route_on(self, host: str) -> Route:
        """Return what NCCL should use there; the interface that the operator names goes before the derived one."""
        route = self.routes.get(host, Route())
        return replace(route, socket=self.options.interface) if self.options.interface else route

    @property
    def every(self) -> list[tuple[str, int]]:
        """Each collective at each size that is asked for."""
        return [
            (name, size) for name in self.collectives for size in (*self.options.sizes.bytes, *self.more.get(name, ()))
        ]

    @property
    def repetitions(self) -> int:
        """How often each case is repeated."""
        return self.options.repetitions or USUAL.repetitions

    @property
    def duration_s(self) -> float:
        """The seconds of one repetition."""
        return self.options.duration_s or USUAL.duration_s


@dataclass(frozen=True, slots=True)
class Case:
    """One collective at one size as measured: the seconds of each repetition, by its slowest rank.

    `chosen` is what NCCL's log tells of this very case.
    """

    collective: str
    size_bytes: int
    seconds: tuple[float, ...]
    iterations: int
    wrong: int | None
    chosen: NcclChoice | None = None


def measurements(
    cases: Sequence[Case],
    group: Group,
    run: Run,
    logs: Sequence[HostLog],
    loaded: Mapping[str, object],
    *,
    complete: bool,
) -> list[Measurement]:
    """Return a measurement for each case, with all conditions."""
    verdicts = verdict_sizes(cases, run.options, complete=complete)
    shared = {**_conditions(group, run), **loaded, **conditions(logs), "complete": complete}
    measured = []
    for case in cases:
        chosen = case.chosen
        model = ceiling(case.collective, group, run.backend, run.routes, chosen.algorithm if chosen else None)
        own = {
            "algorithm": chosen.algorithm if chosen else None,
            "protocol": chosen.protocol if chosen else None,
            **({"nvls": chosen.algorithm.upper().startswith("NVLS")} if chosen and run.backend == "nccl" else {}),
            "model_busbw_gb_s": model and model.busbw_gb_s,
            "model_limit": model and model.limit,
            "verdict_size": verdicts.get((case.collective, case.size_bytes)),
        }
        measured.append(_measurement(case, group, {**shared, **own}))
    return measured


def verdict_sizes(cases: Iterable[Case], options: NcclOptions, *, complete: bool) -> dict[tuple[str, int], str]:
    """Return the sizes at which a verdict is taken: one `large` and one `small`, by case.

    Where the largest size that was asked for was not reached, none is large.
    Of the usual sizes nobody asked for one.
    """
    sizes: dict[str, list[int]] = {}
    for case in cases:
        sizes.setdefault(case.collective, []).append(case.size_bytes)
    verdicts = {}
    for collective, measured in sizes.items():
        if len(measured) > 1:
            verdicts[collective, min(measured)] = "small"
        # ranks share a size evenly, so that it may be a little smaller than asked for
        *smaller, largest = sorted(set(options.sizes.bytes))
        reached = (complete and options.sizes.usual) or max(measured) > max([0.5 * largest, *smaller])
        if reached:
            verdicts[collective, max(measured)] = "large"
    return verdicts


def _measurement(case: Case, group: Group, conditions: Mapping[str, object]) -> Measurement:
    bandwidths = [bandwidth(case.collective, case.size_bytes, group.ranks, seconds) for seconds in case.seconds]
    values = [rate.busbw_gb_s for rate in bandwidths]
    value = median(values)
    figures = {
        "collective": case.collective,
        "size_bytes": case.size_bytes,
        "algbw_gb_s": median(rate.algbw_gb_s for rate in bandwidths),
        "busbw_gb_s": value,
        "values_gb_s": values,
        "time_us": median(case.seconds) * 1e6,
        "times_us": [seconds * 1e6 for seconds in case.seconds],
        "iterations": case.iterations,
        "wrong": case.wrong,
    }
    return Measurement(NAME, group.hosts, value, "GB/s", "", None, spread(values, value), {**figures, **conditions})


def _conditions(group: Group, run: Run) -> dict[str, object]:
    per_host = {part.ranks for part in group.parts}
    alone = len(group.parts) == 1
    # floors of GPUs in one host speak of the links between them
    gpus = run.backend == "nccl"
    classes = {part.endpoint.name: run.routes.get(part.endpoint.name, Route()).link_class for part in group.parts}
    return {
        # what older histories tell measurements apart by
        "engine": "torch",
        "backend": run.backend,
        "scope": run.options.scope,
        "ranks": group.ranks,
        "nodes": None if alone else len(group.parts),
        "ranks_per_host": per_host.pop() if len(per_host) == 1 else None,
        # floors speak of one node's GPUs
        "gpus": group.ranks if gpus and alone else None,
        "link_class": common(classes) if gpus else _NO_GPUS,
        "repetitions": run.repetitions,
        "interfaces": [part.interface for part in group.parts],
        "mtu": [part.endpoint.mtu for part in group.parts],
    }

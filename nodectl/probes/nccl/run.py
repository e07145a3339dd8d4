"""One run of a group of ranks: what it is given, how it is measured, its measurements and findings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from nodectl.common.units import MIB, format_size
from nodectl.facts.parsers.nccl.nccl_log import NcclChoice
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Amount, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import left_s
from nodectl.probes.events import Event
from nodectl.probes.gang import Member, Played, culprits, failure_of, play
from nodectl.probes.nccl.fleet import NAME, Group, Route, common
from nodectl.probes.nccl.models import COLLECTIVES, bandwidth, ceiling
from nodectl.probes.nccl.proof import HostLog, choice_in, conditions, host_log_of, judged, sockets_judged
from nodectl.probes.options import Choice, Sizes, Text, names, option, sweep
from nodectl.transport.base import Transport

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


_RUN_S = 3600.0
# what is there for ending and reporting of the time that is left
_MARGIN_S = 1.0
_LOOPBACK = "lo"


def measure_group(transport: Transport, group: Group, run: Run) -> ProbeResult:
    """One group from start to end."""
    left_time_s = left_s(run.options.ends_at)
    deadline_s = _RUN_S if left_time_s is None else left_time_s + 2 * run.timeout_s
    played = play(transport, _members(group, run, left_time_s), deadline_s)
    logs = []
    for member in played if run.backend == "nccl" else ():
        lines = [line for event in member.events.of("nccl_log") for line in event["lines"]]
        logs.append(host_log_of(member.member.host.name, lines))
    cases = _cases(played, group.ranks)
    cut = [
        f"{event['collective']} {format_size(event['asked_bytes'])}: {event['reason']}"
        for event in _events(played, "cut")
    ]
    # who only saw another fail is not to blame, if none said so of itself
    failed = [
        replace(failure_of(NAME, one), kind="") if one.blames_peer else failure_of(NAME, one)
        for one in culprits(played)
    ]
    whole = not cut and not failed and len(_events(played, "done")) == group.ranks
    if whole:
        seen = {case.collective for case in cases}
        seen |= {event["collective"] for event in _events(played, "unsupported")}
        cut += [f"{name}: not all ranks told what it took" for name in run.collectives if name not in seen]
    complete = whole and not cut
    findings = [
        *_wrong(played),
        *_skipped(played, group, run.backend),
        *_proven(played, group, run, logs),
        *failed,
    ]
    if not complete:
        reasons = [*cut, *(f"{failure.host}: {failure.actual}" for failure in failed)]
        findings.append(_incomplete(group, len(cases), reasons))
    measured = measurements(cases, group, run, logs, _loaded(played), complete=complete)
    return ProbeResult(tuple(measured), tuple(findings))


def _wrong(played: Sequence[Played]) -> Iterator[Finding]:
    remedy = "run the probe again over pairs (--scope pairs): the host that is in every wrong pair is at fault"
    for member in played:
        for event in member.events.of("times"):
            if event["wrong"]:
                yield host_finding(
                    NAME,
                    member.member.host.name,
                    Status.FAILED,
                    f"{event['wrong']} wrong elements on rank {event['rank']}",
                    remedy,
                    subject=f"{event['collective']} {event['size_bytes']} B",
                    action="drain",
                    expected="0 wrong elements",
                )


def _skipped(played: Sequence[Played], group: Group, backend: str) -> Iterator[Finding]:
    lacks = {event["collective"]: event["text"] for event in _events(played, "unsupported")}
    skipped = [(name, f"{backend} has no {name}", text) for name, text in lacks.items()]
    for event in _events(played, "left"):
        subject = f"{event['collective']} {format_size(event['asked_bytes'])}"
        skipped.append((subject, f"a floor's size: {event['reason']}", ""))
    for subject, actual, evidence in skipped:
        status, hosts = Status.SKIPPED, group.hosts
        yield Finding(hosts[0], NAME, status, subject, actual=actual, evidence=evidence, hosts=hosts)


def _incomplete(group: Group, cases: int, reasons: Sequence[str]) -> Finding:
    reason = "; ".join(dict.fromkeys(reasons)) or "the ranks did not come to an end"
    return Finding(
        group.hosts[0],
        NAME,
        Status.UNKNOWN,
        "incomplete",
        expected="every collective at every size",
        actual=f"cut short after {cases} cases over {', '.join(group.hosts)}: {reason}",
        remedy="name fewer collectives or smaller sizes (--collectives, --sizes), or give more time with --budget",
        kind="incomplete",
        hosts=group.hosts,
    )


def _members(group: Group, run: Run, left: float | None) -> list[Member]:
    first, options = group.parts[0].endpoint, run.options
    members, base = [], 0
    for part in group.parts:
        options_of_part = {
            "rank-base": base,
            "world-size": group.ranks,
            "nproc": part.ranks,
            "master-addr": first.address,
            "master-port": options.port or first.free_port,
            "backend": run.backend,
            "interface": part.interface,
            "nccl-interface": options.interface or "",
            "devices": ",".join(map(str, part.devices)),
            "collectives": ",".join(run.collectives),
            "sizes": ",".join(map(str, options.sizes.bytes)),
            "usual": int(options.sizes.usual),
            "more": ",".join(f"{name}:{size}" for name, sizes in run.more.items() for size in sizes),
            "repetitions": run.repetitions,
            "seconds": run.duration_s,
            "timeout": run.timeout_s,
            "deadline": 0.0 if left is None else max(0.1, left - _MARGIN_S),
        }
        args = tuple(f"--{name}={value}" for name, value in options_of_part.items())
        host = part.endpoint.host
        members.append(Member(host, "probes.nccl.probe", args, f"{venv_of(host)}/bin/python"))
        base += part.ranks
    return members


def _events(played: Sequence[Played], kind: str) -> list[Event]:
    return [event for member in played for event in member.events.of(kind)]


def _cases(played: Sequence[Played], ranks: int) -> list[Case]:
    by_rank: dict[tuple[str, int], dict[int, Event]] = defaultdict(dict)
    for event in _events(played, "times"):
        # small sizes that were asked for can come to the same when ranks share them; the first counts
        by_rank[event["collective"], event["size_bytes"]].setdefault(event["rank"], event)
    events_of = {case: list(events.values()) for case, events in by_rank.items()}
    return [
        # a repetition is as slow as its slowest rank
        Case(
            collective,
            size_bytes,
            tuple(max(times) for times in zip(*(event["seconds"] for event in events), strict=True)),
            events[0]["iterations"],
            sum(event["wrong"] for event in events),
            # by the line that one rank logged while this case was checked
            next((chosen for event in events if (chosen := choice_in(event.get("chosen")))), None),
        )
        for (collective, size_bytes), events in events_of.items()
        if len(events) == ranks
    ]


def _loaded(played: Sequence[Played]) -> dict[str, object]:
    ready = _events(played, "ready")
    by_host = {member.member.host.name: member for member in played}
    numa = {name: [event["numa"] for event in member.events.of("ready")] for name, member in by_host.items()}
    used = {name: _interfaces(member) for name, member in by_host.items()}
    return {
        **{key: _one_of(ready, key) for key in ("torch", "nccl", "cuda", "device")},
        "numa_nodes": common({name: sorted(nodes, key=str) for name, nodes in numa.items()}),
        "interfaces_used": common({name: sorted(interfaces) for name, interfaces in used.items()}),
    }


def _one_of(events: Sequence[Event], key: str) -> object:
    values = sorted({str(event[key]) for event in events if event.get(key) is not None})
    return values[0] if len(values) == 1 else values or None


def _interfaces(played: Played) -> dict[str, int]:
    connections: dict[str, int] = defaultdict(int)
    for event in played.events.of("sockets"):
        for name, count in event["interfaces"].items():
            connections[name] += count
    return dict(connections)


def _proven(played: Sequence[Played], group: Group, run: Run, logs: Sequence[HostLog]) -> Iterator[Finding]:
    alone = len(group.parts) == 1
    for part, member in zip(group.parts, played, strict=True):
        name = part.endpoint.name
        if not member.events.of("ready"):
            continue
        if run.backend == "nccl":
            log = next(log for log in logs if log.host == name)
            yield from judged(log, run.route_on(name), alone=alone)
        elif not alone and member.events.of("sockets"):
            # several ranks of a host also meet by its loopback
            used = {net: count for net, count in _interfaces(member).items() if part.ranks == 1 or net != _LOOPBACK}
            yield from sockets_judged(name, used, part.interface)

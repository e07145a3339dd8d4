"""The sdc probe: the same seeded computation on every GPU, or processor, of the fleet, compared bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult, host_finding
from nodectl.probes.budget import marked
from nodectl.probes.device.devices import START_S, Kind, device_of, least_of, measured, planned, shown
from nodectl.probes.each import Node
from nodectl.probes.events import Events
from nodectl.transport.base import Transport


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or a processor: what it is, and how often which digest came out of which operation."""

    host: str
    name: str
    kind: Hashable
    digests: Mapping[str, Mapping[str, int]]

    @property
    def place(self) -> tuple[str, str]:
        """Return what tells it from all others."""
        return self.host, self.name


@dataclass(frozen=True, slots=True)
class Doubt:
    """Units of one kind that differ, and nobody can tell who is right: the camps of each digest, by operation."""

    operations: tuple[str, ...]
    camps: tuple[tuple[tuple[str, str], ...], ...]


@dataclass(slots=True)
class Votes:
    """The operations in which a place differs from itself, or from most others, by place; and what cannot be told."""

    unstable: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    odd: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    def suspects(self) -> set[tuple[str, str]]:
        """Every place that is not beyond doubt."""
        camps = {place for doubt in self.doubts for camp in doubt.camps for place in camp}
        return {*self.unstable, *self.odd, *camps}


def vote(units: Sequence[Device]) -> Votes:
    """Judge each result: right is what more than half of all units have, and more than half of their hosts."""
    votes = Votes()
    kinds: dict[Hashable, list[Device]] = defaultdict(list)
    for unit in units:
        kinds[unit.kind].append(unit)
        changing = [name for name, counts in unit.digests.items() if len(counts) > 1]
        if changing:
            votes.unstable[unit.place] = changing
    for alike in kinds.values():
        unclear: dict[tuple[tuple[tuple[str, str], ...], ...], list[str]] = defaultdict(list)
        for name in sorted({name for unit in alike for name in unit.digests}):
            camps = _camps(alike, name)
            right = _right(camps)
            if len(camps) > 1 and right is None:
                unclear[tuple(sorted(tuple(places) for places in camps.values()))].append(name)
            for digest, places in camps.items():
                for place in places if right not in (None, digest) else ():
                    votes.odd.setdefault(place, []).append(name)
        votes.doubts += [Doubt(tuple(names), camps) for camps, names in unclear.items()]
    return votes


def _camps(units: Sequence[Device], operation: str) -> dict[str, list[tuple[str, str]]]:
    """Return the places of each digest; those that differ from themselves have no vote."""
    camps: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for unit in units:
        counts = unit.digests.get(operation, {})
        if len(counts) == 1:
            camps[next(iter(counts))].append(unit.place)
    return camps


def _right(camps: Mapping[str, Sequence[tuple[str, str]]]) -> str | None:
    places = Counter({digest: len(members) for digest, members in camps.items()})
    hosts = {digest: {host for host, _ in members} for digest, members in camps.items()}
    all_hosts = set().union(*hosts.values()) if hosts else set()
    for digest, count in places.most_common(1):
        if 2 * count > places.total() and 2 * len(hosts[digest]) > len(all_hosts):
            return digest
    return None


_NAME = "sdc"
_USUAL = Amount(repetitions=3, duration_s=1.0)
_PREPARE_S = 1.0
_REMEDY = "take it out of use; look for ECC errors and Xids with `nodectl health`, then run its vendor's diagnosis"
_SPELLED_OUT = 2
# what decides which bits come out of sound devices
_KIND = ("device", "cpu", "cpu_kernels", "processors", "capability", "torch", "cuda")


@dataclass(slots=True)
class _Gathered:
    """The units of all hosts, and what is known of each."""

    units: list[Device] = field(default_factory=list)
    conditions: dict[tuple[str, str], dict[str, object]] = field(default_factory=dict)

    def read(self, node: Node, events: Events) -> ProbeResult:
        """Only gathers: what it means is seen when all have answered."""
        for event in events.of("computed"):
            device = device_of(events, event["gpu"])
            kind = tuple(device.get(name) for name in _KIND)
            name = f"GPU {event['gpu']}" if event["gpu"] is not None else f"CPU {event['cpu']}"
            unit = Device(node.host.name, name, kind, event["digests"])
            self.units.append(unit)
            self.conditions[unit.place] = {**device, "gpu": event["gpu"], **(event.get("seen") or {})}
        return ProbeResult()


def run_sdc(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """Measure the number of wrong results of every device: 0, or a finding says whose."""
    gathered = _Gathered()
    kind = Kind(PROBE, _cost_s, gathered.read, on_cpu=True)
    plan = planned(transport, hosts, options, note, kind)
    if isinstance(plan, ProbeResult):
        return plan

    def one(node: Node, _: object) -> ProbeResult:
        return measured(transport, plan, kind, node)

    result = ProbeResult(findings=plan.findings) + plan.measured(transport, plan.nodes, one)
    first, gathered.units = gathered.units, []
    votes = vote(first)
    # where it is not known who is wrong, asking once more does not tell either
    suspects = {host for host, _ in (*votes.unstable, *votes.odd)}
    again = [node for node in plan.nodes if node.host.name in suspects]
    repeated = None
    if again and plan.fits(again):
        note(f"{_NAME}: once more on {', '.join(sorted(suspects))}")
        reported = set(result.findings)
        more = plan.measured(transport, again, one)
        result += ProbeResult(findings=tuple(finding for finding in more.findings if finding not in reported))
        repeated = vote([*(unit for unit in first if unit.host not in suspects), *gathered.units])
    measurements = tuple(_measurements(first, gathered.conditions, votes, plan.amount))
    verdict = ProbeResult(measurements, (*_blamed(votes, repeated), *_unclear(votes)))
    return marked(result + verdict, plan.options)


def _cost_s(amount: Amount, _: Node | None = None) -> float:
    return START_S + amount.repetitions * (_PREPARE_S + amount.duration_s)


def _measurements(
    units: Sequence[Device], conditions: Mapping[tuple[str, str], Mapping[str, object]], votes: Votes, amount: Amount
) -> Iterator[Measurement]:
    """One a GPU, and one for all processors of a host together."""
    alike = Counter(unit.kind for unit in units)
    shown: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for unit in units:
        shown[unit.host, unit.name if conditions[unit.place]["gpu"] is not None else "CPU"].append(unit)
    doubtful = {place for doubt in votes.doubts for camp in doubt.camps for place in camp}
    for (host, name), members in shown.items():
        wrong = sum(len({*votes.unstable.get(unit.place, ()), *votes.odd.get(unit.place, ())}) for unit in members)
        given = {
            **conditions[members[0].place],
            "operations": sorted(members[0].digests),
            "units": len(members),
            "compared_with": alike[members[0].kind] - len(members),
            "rounds": min(sum(counts.values()) for unit in members for counts in unit.digests.values()),
            "repetitions": amount.repetitions,
            "duration_s": amount.duration_s,
            "digest": _fingerprint(members[0]),
            "unclear": any(unit.place in doubtful for unit in members),
        }
        yield Measurement(_NAME, (host,), float(wrong), "wrong results", f"{host} {name}", None, None, given)


def _fingerprint(unit: Device) -> str:
    """Return one digest of all results: the same for units that agree."""
    results = {name: sorted(counts) for name, counts in unit.digests.items()}
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()[:16]


def _blamed(votes: Votes, again: Votes | None) -> Iterator[Finding]:
    """One a host: which of its units, in what, and whether it was so a second time."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, name in {**votes.unstable, **votes.odd}:
        hosts[host].append(name)
    for host, names in sorted(hosts.items()):
        unstable = sorted({operation for name in names for operation in votes.unstable.get((host, name), ())})
        odd = sorted({operation for name in names for operation in votes.odd.get((host, name), ())})
        reasons = [f"differs from itself in {', '.join(unstable)}"] if unstable else []
        reasons += [f"differs from most others of its kind in {', '.join(odd)}"] if odd else []
        yield host_finding(
            _NAME,
            host,
            Status.FAILED,
            f"{'; '.join(reasons)}{_second(host, names, again)}",
            _REMEDY,
            subject=", ".join(sorted(names)),
            action="drain",
            expected="the same bits each time and everywhere",
        )


def _second(host: str, names: Sequence[str], again: Votes | None) -> str:
    if again is None:
        return ""
    still = any((host, name) in again.suspects() for name in names)
    return "; a second time, too" if still else "; not a second time: it comes and goes"


def _unclear(votes: Votes) -> Iterator[Finding]:
    """Something computes wrongly, and it cannot be told which."""
    for doubt in votes.doubts:
        hosts = tuple(sorted({host for camp in doubt.camps for host, _ in camp}))
        yield Finding(
            hosts[0],
            _NAME,
            Status.FAILED,
            " against ".join(_camp(camp) for camp in doubt.camps),
            expected="the same bits everywhere",
            actual=f"different results in {', '.join(doubt.operations)}: it cannot be told which of them is wrong",
            remedy="run it with a third host of the same kind, or more",
            hosts=hosts,
        )


def _camp(places: Sequence[tuple[str, str]]) -> str:
    """Return `gpu01 (GPU 0, GPU 1)`; many hosts are folded."""
    units: dict[str, list[str]] = defaultdict(list)
    for host, name in places:
        units[host].append(name)
    if len(units) > _SPELLED_OUT:
        return fold(units)
    return ", ".join(f"{host} ({', '.join(names)})" for host, names in units.items())


def _shown(given: Conditions) -> str:
    return shown(given, counted(given.get("rounds"), "round"), f"{given.get('compared_with')} to compare with")


PROBE = Probe(
    name=_NAME,
    summary="The same computation on every GPU, or processor, of the fleet, compared bit for bit.",
    run=run_sdc,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("wrong results", decimals=0, lower_is_better=True, is_count=True),),
        identity=("numa", "threads", "gpu", "device"),
        places=("numa", "gpu"),
        shown=_shown,
    ),
    usual=_USUAL,
    least=least_of(_USUAL),
    cost_s=_cost_s,
    groups=("gpu",),
    needs=(Need.TORCH,),
    feels=("gpu",),
)

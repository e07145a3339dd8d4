"""The sdc probe: the same seeded computation on every GPU, or processor, of the fleet, compared bit for bit."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult
from nodectl.probes.budget import has_time, marked
from nodectl.probes.device.devices import START_S, Kind, Node, device_of, least_of, measured, planned, shown
from nodectl.probes.device.sdc_votes import Unit as Device
from nodectl.probes.device.sdc_votes import Votes, vote
from nodectl.probes.events import Event, Events
from nodectl.transport.base import Transport

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
            unit = Device(node.host.name, _unit_name(event), kind, event["digests"])
            self.units.append(unit)
            self.conditions[unit.place] = {**device, "gpu": event["gpu"], **(event.get("seen") or {})}
        return ProbeResult()


def run_sdc(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """The number of wrong results of every device: 0, or a finding says whose."""
    gathered = _Gathered()
    kind = Kind(PROBE, _cost_s, gathered.read, on_cpu=True)
    plan, findings = planned(transport, hosts, options, note, kind)
    result = ProbeResult(findings=tuple(findings))
    if plan is None:
        return result
    result += measured(transport, plan, plan.nodes)
    first, gathered.units = gathered.units, []
    votes = vote(first)
    # where it is not known who is wrong, asking once more does not tell either
    suspects = {host for host, _ in (*votes.unstable, *votes.odd)}
    again = [node for node in plan.nodes if node.host.name in suspects]
    repeated = None
    if again and has_time(plan.options, plan.cost_s(again)):
        note(f"{_NAME}: once more on {', '.join(sorted(suspects))}")
        told = set(result.findings)
        more = measured(transport, plan, again)
        result += ProbeResult(findings=tuple(each for each in more.findings if each not in told))
        repeated = vote([*(unit for unit in first if unit.host not in suspects), *gathered.units])
    measurements = tuple(_measurements(first, gathered.conditions, votes, plan.amount))
    verdict = ProbeResult(measurements, (*_blamed(votes, repeated), *_unclear(votes)))
    return marked(result + verdict, plan.options)


def _cost_s(amount: Amount, _: Node | None = None) -> float:
    return START_S + amount.repetitions * (_PREPARE_S + amount.duration_s)


def _unit_name(event: Event) -> str:
    return f"GPU {event['gpu']}" if event["gpu"] is not None else f"CPU {event['cpu']}"


def _measurements(
    units: Sequence[Device], conditions: Mapping[tuple[str, str], Mapping[str, object]], votes: Votes, amount: Amount
) -> Iterator[Measurement]:
    """One a GPU, and one for all processors of a host together."""
    alike = Counter(unit.kind for unit in units)
    shown: dict[tuple[str, str], list[Device]] = defaultdict(list)
    for unit in units:
        shown[unit.host, unit.name if conditions[unit.place]["gpu"] is not None else "CPU"].append(unit)
    doubtful = {place for doubt in votes.doubts for camp in doubt.camps for place in camp}
    for (host, name), own in shown.items():
        wrong = sum(len({*votes.unstable.get(unit.place, ()), *votes.odd.get(unit.place, ())}) for unit in own)
        told = {
            **conditions[own[0].place],
            "operations": sorted(own[0].digests),
            "units": len(own),
            "compared_with": alike[own[0].kind] - len(own),
            "rounds": min(sum(found.values()) for unit in own for found in unit.digests.values()),
            "repetitions": amount.repetitions,
            "duration_s": amount.duration_s,
            "digest": _fingerprint(own[0]),
            "unclear": any(unit.place in doubtful for unit in own),
        }
        yield Measurement(_NAME, (host,), float(wrong), "wrong results", f"{host} {name}", None, None, told)


def _fingerprint(unit: Device) -> str:
    """Of all its results: the same for units that agree."""
    results = {name: sorted(found) for name, found in unit.digests.items()}
    return hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()[:16]


def _blamed(votes: Votes, again: Votes | None) -> Iterator[Finding]:
    """One a host: which of its units, in what, and whether it was so a second time."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, name in {**votes.unstable, **votes.odd}:
        hosts[host].append(name)
    for host, names in sorted(hosts.items()):
        unstable = sorted({each for name in names for each in votes.unstable.get((host, name), ())})
        odd = sorted({each for name in names for each in votes.odd.get((host, name), ())})
        words = [f"differs from itself in {', '.join(unstable)}"] if unstable else []
        words += [f"differs from most others of its kind in {', '.join(odd)}"] if odd else []
        yield Finding(
            host,
            _NAME,
            Status.FAILED,
            ", ".join(sorted(names)),
            "drain",
            expected="the same bits each time and everywhere",
            actual=f"{'; '.join(words)}{_second(host, names, again)}",
            remedy=_REMEDY,
            kind="host",
            hosts=(host,),
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
    """`gpu01 (GPU 0, GPU 1)`; many hosts are folded."""
    units: dict[str, list[str]] = defaultdict(list)
    for host, name in places:
        units[host].append(name)
    if len(units) > _SPELLED_OUT:
        return fold(units)
    return ", ".join(f"{host} ({', '.join(names)})" for host, names in units.items())


def _shown(given: Conditions) -> str:
    return shown(given, f"{given.get('rounds')} rounds", f"{given.get('compared_with')} to compare with")


PROBE = Probe(
    name=_NAME,
    summary="The same computation on every GPU, or processor, of the fleet, compared bit for bit.",
    run=run_sdc,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("wrong results", decimals=0),), identity=("numa", "threads", "gpu", "device"), shown=_shown
    ),
    usual=_USUAL,
    least=least_of(_USUAL),
    cost_s=_cost_s,
    groups=("gpu",),
    needs=(Need.TORCH,),
)

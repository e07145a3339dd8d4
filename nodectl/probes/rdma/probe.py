"""The rdma probe: perftest between pairs of hosts, every NIC with its peer on the same rail, or on each host alone."""

from __future__ import annotations

import ipaddress
import json
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nodectl.common.counting import counted
from nodectl.common.natural import natural
from nodectl.common.units import format_size, format_value, time_text
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeResult, host_finding
from nodectl.probes.blame.findings import inquire
from nodectl.probes.blame.fit import HostPair
from nodectl.probes.budget import fit, given_up, has_time, marked
from nodectl.probes.duet import Duet, Pair, Played, play
from nodectl.probes.endpoints import find_endpoints
from nodectl.probes.events import Event
from nodectl.probes.nominal import all_short
from nodectl.probes.outliers import Comparison, SlowOne, better, slow_finding
from nodectl.probes.rdma.argv import NAME, PROGRAMS, RdmaOptions, is_latency
from nodectl.probes.rdma.errors import failed_finding
from nodectl.probes.rdma.plan import (
    USUAL,
    Case,
    cases_alone,
    cases_of,
    cost_s,
    deadline_s,
    operations_of,
    size_of,
    test_of,
)
from nodectl.probes.rdma.ready import Nic, Port, Site, find_sites, ready
from nodectl.probes.rdma.result import result_of
from nodectl.probes.rounds import planned_rounds, require_two, switch_names
from nodectl.probes.schedule import by_machine, in_rounds, together, turns
from nodectl.transport.base import Transport

_ALIKE = ("operation", "memory", "way", "link_layer", "rate_gbit_s")
_COMPARISON = Comparison(
    lambda measurement: tuple(str(measurement.conditions[name]) for name in _ALIKE), series="operation"
)
_REMEDY = (
    "look at its PCIe link (width and speed: `nodectl health`), cable and error counters; measure once more with "
    "nothing else running"
)


def ends_of(measurement: Measurement) -> frozenset[str]:
    """Return the ports between which it was taken, one where that is a port with itself."""
    device = measurement.conditions["device"]
    return frozenset(map(str, device)) if isinstance(device, list | tuple) else frozenset()


def _of_nics(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return of each NIC the better one of its links: a slow neighbour is not its fault.

    A link is as good as its slower direction.
    """
    links: dict[tuple[str, str, frozenset[str]], Measurement] = {}
    for measurement in measurements:
        link = measurement.hosts[0], str(measurement.conditions["way"]), ends_of(measurement)
        if measurement.value <= links.setdefault(link, measurement).value:
            links[link] = measurement
    nics: dict[tuple[str, str, str], list[Measurement]] = defaultdict(list)
    for (host, way, ports), measurement in links.items():
        for port in ports:
            nics[host, way, port].append(measurement)
    best = {nic: max(links_of_nic, key=lambda measurement: measurement.value) for nic, links_of_nic in nics.items()}
    return [
        replace(best[nic], direction=f"{nic[0]} {nic[2]}").with_conditions(nic=nic[2], links=len(nics[nic]))
        for nic in sorted(nics, key=lambda nic: (nic[0], natural(nic[2])))
    ]


def _slow_findings(slow_nics: Sequence[SlowOne]) -> list[Finding]:
    findings: dict[tuple[str, str], Finding] = {}
    for slow_nic in slow_nics:
        given, host = slow_nic[0].conditions, slow_nic[0].hosts[0]
        name = " or ".join(sorted(ends_of(slow_nic[0]), key=natural)) if given["links"] == 1 else str(given["nic"])
        finding = slow_finding(
            slow_nic, f"{given['operation']} of {name}", _REMEDY, digits=".4g", other="the other NIC has"
        )
        findings.setdefault((host, name), replace(finding, actual=f"{name}, {given['way']}: {finding.actual}"))
    return list(findings.values())


@dataclass(frozen=True, slots=True)
class Node:
    """A host with the NICs that can be measured."""

    site: Site
    nics: tuple[Nic, ...]

    @property
    def host(self) -> Host:
        """The host of the inventory."""
        return self.site.endpoint.host

    @property
    def machine(self) -> str:
        """The machine's id, that of the host if it is not known."""
        return self.site.endpoint.machine or self.site.name

    @property
    def pairs(self) -> list[tuple[Nic, Nic]]:
        """Return each NIC with the next one of its kind, the last with the first; one that is alone with itself."""
        kinds: dict[Hashable, list[Nic]] = defaultdict(list)
        for nic in sorted(self.nics, key=lambda nic: natural(nic.port.label)):
            # NICs of the same kind reach each other
            network = _network(nic.port, nic.gid.ipv4 if nic.gid else None)
            kinds[nic.port.link_layer, nic.port.rate_gbit_s, network].append(nic)
        return [
            (nic, alike[(number + 1) % len(alike)])
            for alike in kinds.values()
            for number, nic in enumerate(alike if len(alike) > 2 else alike[:1])
        ]


def _of_operation(result: ProbeResult, operation: str) -> list[Measurement]:
    return [measurement for measurement in result.measurements if measurement.conditions["operation"] == operation]


def _network(port: Port, address: str | None) -> str:
    """Return the subnet of InfiniBand; of RoCE the IPv4 network, the port itself if that is not known."""
    if not port.is_ethernet:
        return port.gids[0].gid[:19] if port.gids else ""
    networks = [ipaddress.IPv4Network(text, strict=False) for text in port.networks]
    reaching = [network for network in networks if address and ipaddress.IPv4Address(address) in network]
    # two addresses, one at each end of a cable, have no room for another NIC of the host
    return str(max(reaching, key=lambda network: network.prefixlen)) if reaching else port.label


_UNREACHED = {"refused": "firewall", "no_answer": "firewall", "unreachable": "unreachable", "other": "other"}


@dataclass(frozen=True, slots=True)
class _Fleet:
    transport: Transport
    sites: Mapping[str, Site]
    nics: Mapping[str, Mapping[str, Nic]]


def run_rdma(transport: Transport, hosts: Sequence[Host], options: RdmaOptions, note: Note) -> ProbeResult:
    """Gb/s and microseconds of each pair, rail and direction; what fails says which of the known reasons it is."""
    operations = operations_of(options)
    if not options.by_itself:
        require_two(hosts, NAME, ", or measure each host by itself with --scope node")
    endpoints, findings = find_endpoints(transport, hosts, NAME, options)
    programs = [PROGRAMS[operation] for operation in operations]
    sites, silent = find_sites(transport, endpoints, programs, options)
    nics, unready = ready(sites, options, programs)
    fleet = _Fleet(transport, {site.name: site for site in sites}, nics)
    able = [site.endpoint for site in sites if nics.get(site.name)]
    result = ProbeResult(findings=(*findings, *silent, *unready))
    if options.by_itself:
        return result + _each_host(fleet, hosts, operations, options, note)
    switches = switch_names(endpoint.host for endpoint in able)
    mode, rounds = planned_rounds(able, options)
    if not rounds:
        note("rdma: fewer than two hosts have a port that can be measured")
        return result
    rails = max(len(nics[endpoint.host.name]) for endpoint in able)
    options, amount = fit(PROBE, options, len(rounds), lambda amount: cost_s(amount, rails, operations))
    rounds = rounds[: amount.rounds]
    cost = time_text(cost_s(amount, rails, operations))
    note(
        f"rdma: pairs {mode}, {counted(sum(map(len, rounds)), 'pair')} in {counted(len(rounds), 'round')}, "
        f"{counted(rails, 'NIC')} a host, {', '.join(operations)}: about {cost}{given_up(options)}"
    )
    result += in_rounds(transport, rounds, lambda pair: _measure(fleet, pair, operations, options), NAME, note)
    return marked(result + _suspects(fleet, result, operations, options, switches, note), options)


def _each_host(
    fleet: _Fleet, hosts: Sequence[Host], operations: Sequence[str], options: RdmaOptions, note: Note
) -> ProbeResult:
    nodes = [Node(site, tuple(fleet.nics[name].values())) for name, site in fleet.sites.items() if fleet.nics.get(name)]
    if not nodes:
        note("rdma: no host has a port that can be measured")
        return ProbeResult()
    pairs, in_turn = max(len(node.pairs) for node in nodes), turns(nodes, options.forks)

    def each_s(amount: Amount, asked: Sequence[str] = operations) -> float:
        return cost_s(amount, pairs, asked)

    options, amount = fit(PROBE, options, 1, lambda amount: in_turn * each_s(amount))
    nics = max(len(node.nics) for node in nodes)
    note(
        f"rdma: {counted(len(nodes), 'host')}, each by itself, {counted(nics, 'NIC')} a host, "
        f"{', '.join(operations)}: about {time_text(in_turn * each_s(amount))}{given_up(options)}"
    )

    def measure(some: Sequence[Node], asked: Sequence[str]) -> ProbeResult:
        def one(node: Node) -> ProbeResult:
            end = node.site.endpoint
            return _played(fleet, (end, end), cases_alone(end.name, node.pairs, asked, options), options)

        return by_machine(fleet.transport, some, one, options.forks)

    result = measure(nodes, operations)
    if judged := _judged(operations):
        names = {row.hosts[0] for row, _ in _COMPARISON.slow_ones(_of_nics(_of_operation(result, judged)), hosts)}
        suspects = [node for node in nodes if node.site.name in names]
        if suspects and has_time(options, turns(suspects, options.forks) * each_s(amount, (judged,))):
            note(f"rdma: once more on {', '.join(node.site.name for node in suspects)}")
            result = better(result, measure(suspects, (judged,)), "operation")
        compared = _of_operation(result, judged)
        slow = _slow_findings(_COMPARISON.slow_ones(_of_nics(compared), hosts))
        result += ProbeResult(findings=(*slow, *all_short(NAME, compared)))
    return marked(result, options)


def _judged(operations: Sequence[str]) -> str | None:
    return next((operation for operation in operations if not is_latency(operation)), None)


def _measure(fleet: _Fleet, pair: Pair, operations: Sequence[str], options: RdmaOptions) -> ProbeResult:
    first, second = (endpoint.host.name for endpoint in pair)
    cases = cases_of((first, second), fleet.nics, operations, options)
    if cases:
        return _played(fleet, pair, cases, options)
    ours, theirs = fleet.nics[first], fleet.nics[second]
    if common := [rail for rail in ours if rail in theirs]:
        layers = f"{ours[common[0]].port.link_layer} and {theirs[common[0]].port.link_layer}"
        return ProbeResult(findings=(_path("link_layer", first, second, layers),))
    rails = f"rails {', '.join(ours)} and {', '.join(theirs)}: no NIC has a peer"
    lacking = _path("other", first, second, rails)
    return ProbeResult(findings=(replace(lacking, subject="no_peer", status=Status.UNKNOWN, remedy=""),))


def _played(fleet: _Fleet, pair: Pair, cases: Sequence[Case], options: RdmaOptions) -> ProbeResult:
    """Run the cases of each client in turn; ends that did not meet, or lost each other, are not asked again."""
    programs = {name: site.programs for name, site in fleet.sites.items()}
    ran: list[Case] = []
    events: list[Event] = []
    for client, server in dict.fromkeys((pair, pair[::-1])):
        own = [case for case in cases if case.client == client.host.name]
        if not own:
            continue
        plan = json.dumps([test_of(case) for case in own])
        total_s, bind = sum(deadline_s(case.size) for case in own), options.interface is not None
        duet = Duet("probes.rdma.probe", ["--plan", plan], options.port or 0, bind, total_s)
        played = play(fleet.transport, (client, server), duet)
        if played.no_server is not None:
            status, reason, remedy = played.no_server
            kind, actual = "port_busy" if "in use" in reason else "no_server", f"cannot listen: {reason}"
            unserved = failed_finding(kind, actual, server.host.name, status=status, remedy=remedy)
            return result_of(ran, events, programs) + ProbeResult(findings=(unserved,))
        events += [{**event, "test": len(ran) + int(event["test"])} for event in played.events.of("run")]
        ran += own
        if played.done is not None and not played.done.ok:
            break
    measured = result_of(ran, events, programs)
    findings = []
    for finding in measured.findings:
        limit = fleet.sites[finding.host].memlock_bytes
        if finding.subject == "memlock" and limit is not None:
            actual = f"{finding.actual}; the login may lock {limit >> 10} KiB there"
            finding = replace(finding, actual=actual)
        findings.append(finding)
    return ProbeResult(measured.measurements, (*findings, *_unfinished((client, server), played, measured)))


def _unfinished(pair: Pair, played: Played, measured: ProbeResult) -> list[Finding]:
    done = played.done
    if done is None or done.ok:
        return []
    client, server = (endpoint.host.name for endpoint in pair)
    reason, remedy = played.reason
    if done.outcome is not Outcome.RAN or client == server:
        return [host_finding(NAME, client, Status.UNKNOWN, reason, remedy)]
    unreached = played.events.of("unreached")
    if not unreached:
        return [] if measured.findings else [_path("other", client, server, reason)]
    return [_path(_UNREACHED[unreached[0]["why"]], client, server, f"the server listens there, but: {reason}")]


def _path(kind: str, client: str, server: str, actual: str) -> Finding:
    return failed_finding(kind, f"{client} -> {server}: {actual}", client, server)


def _suspects(
    fleet: _Fleet,
    first: ProbeResult,
    operations: Sequence[str],
    options: RdmaOptions,
    switches: Mapping[str, str],
    note: Note,
) -> ProbeResult:
    """Return who is slow, rail by rail, by the first operation of throughput; suspects are measured again."""
    judged = _judged(operations)
    result = ProbeResult()
    if judged is None:
        return result
    rails = dict.fromkeys(str(measurement.conditions["rail"]) for measurement in first.measurements)
    for number, rail in enumerate(rails):
        measured = [row for row in _of_operation(first, judged) if row.conditions["rail"] == rail]
        of_rail = ProbeResult(tuple(measured), first.findings)
        again = partial(_again, fleet, rail, judged, options)
        # what is said of the first rail need not be said of each
        slow, second = inquire(NAME, of_rail, again, switches, (lambda _: None) if number else note)
        if len(rails) > 1:
            slow = tuple(replace(finding, actual=f"rail {rail}: {finding.actual}") for finding in slow)
        result += second + ProbeResult(findings=(*slow, *all_short(NAME, of_rail.measurements)))
    return result


def _again(fleet: _Fleet, rail: str, operation: str, options: RdmaOptions, pairs: Sequence[HostPair]) -> ProbeResult:
    seconds = size_of(operation, options).seconds or USUAL.duration_s
    amount = Amount(options.repetitions or USUAL.repetitions, float(seconds))
    if not has_time(options, cost_s(amount, 1, (operation,))):
        return ProbeResult()
    nics = {host: {rail: by_rail[rail]} if rail in by_rail else {} for host, by_rail in fleet.nics.items()}
    only, sites = replace(fleet, nics=nics), fleet.sites
    ends = [(sites[a].endpoint, sites[b].endpoint) for a, b in pairs]
    return together(fleet.transport, ends, lambda pair: _measure(only, pair, (operation,), options))


def _shown(given: Conditions) -> str:
    device, size_bytes, p99_us = given.get("device"), given.get("size_bytes"), given.get("p99_us")
    ends = " -> ".join(dict.fromkeys(map(str, device))) if isinstance(device, list | tuple) else "?"
    sized = format_size(size_bytes) if isinstance(size_bytes, int) else "?"
    slowest = format_value(p99_us, "us") if isinstance(p99_us, int | float) else "? us"
    tail = f", p99 {slowest}" if "p99_us" in given else ""
    way = f", {given['way']}" if given.get("way") else ""
    return f"{given.get('operation')} {sized}, {given.get('memory')} memory, {ends}{way}{tail}"


PROBE = Probe(
    name=NAME,
    summary="perftest between pairs of hosts, every NIC with its peer on the same rail, or on each host by itself.",
    help="Each failure is one word of a fixed list, with what to do.",
    run=run_rdma,
    options=RdmaOptions,
    results=MeasurementKind(
        units=(Unit("Gb/s"), Unit("us")),
        identity=("operation", "gpu", "device", "memory", "rail", "way"),
        places=("gpu", "device", "rail"),
        shown=_shown,
    ),
    usual=USUAL,
    least=Amount(repetitions=1, duration_s=1.0),
    cost_s=cost_s,
    between_hosts=True,
    groups=("quick", "network"),
    needs=(Need.RDMA,),
    floors=("rate_gbit_s",),
    feels=("nic", "limits", "gpu"),
)

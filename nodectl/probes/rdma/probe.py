"""The rdma probe: perftest between pairs of hosts, every NIC with its peer on the same rail, or on each host alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nodectl.common.counting import counted
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
from nodectl.probes.nominal import all_short
from nodectl.probes.rdma.argv import NAME, PROGRAMS, RdmaOptions, is_latency
from nodectl.probes.rdma.errors import failed_finding
from nodectl.probes.rdma.node import Course, Node, run_nodes
from nodectl.probes.rdma.plan import (
    USUAL,
    cases_of,
    cost_s,
    deadline_s,
    measurable,
    operations_of,
    plan_of,
    size_of,
)
from nodectl.probes.rdma.ready import Nic, Site, find_sites, ready
from nodectl.probes.rdma.result import result_of
from nodectl.probes.rounds import planned_rounds, require_two, switch_names
from nodectl.probes.schedule import in_rounds, together, turns
from nodectl.transport.base import Transport

_UNREACHED = {"refused": "firewall", "no_answer": "firewall", "unreachable": "unreachable", "other": "other"}


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Hold what was found: the NICs of each host by rail, and the programs there."""

    transport: Transport
    sites: Mapping[str, Site]
    nics: Mapping[str, Mapping[str, Nic]]


def run_rdma(transport: Transport, hosts: Sequence[Host], options: RdmaOptions, note: Note) -> ProbeResult:
    """Gb/s and microseconds of each pair, rail and direction; what fails says which of the known reasons it is."""
    operations = measurable(operations_of(options), options.memory)
    if not options.by_itself:
        require_two(hosts, NAME, "widen --limit, or measure each host by itself with --scope node")
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
    mode, rounds = planned_rounds(able, switches, options)
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
    """Every host by itself."""
    nodes = [Node(site, tuple(fleet.nics[name].values())) for name, site in fleet.sites.items() if fleet.nics.get(name)]
    if not nodes:
        note("rdma: no host has a port that can be measured")
        return ProbeResult()
    rounds, in_turn = max(len(node.rounds) for node in nodes), turns(nodes, options.forks)

    def each_s(amount: Amount, asked: Sequence[str] = operations) -> float:
        return cost_s(replace(amount, rounds=rounds), 1, asked)

    options, amount = fit(PROBE, options, 1, lambda amount: in_turn * each_s(amount))
    nics = max(len(node.nics) for node in nodes)
    note(
        f"rdma: {counted(len(nodes), 'host')}, each by itself, {counted(nics, 'NIC')} a host in "
        f"{counted(rounds, 'round')}, {', '.join(operations)}: about {time_text(in_turn * each_s(amount))}"
        f"{given_up(options)}"
    )
    course = Course(fleet.transport, operations, options, partial(each_s, amount), partial(has_time, options), note)
    result = run_nodes(course, hosts, nodes)
    return marked(replace(result, findings=tuple(_with_limit(fleet, finding) for finding in result.findings)), options)


def _measure(fleet: _Fleet, pair: Pair, operations: Sequence[str], options: RdmaOptions) -> ProbeResult:
    """One pair: its first host leads."""
    first, second = (endpoint.host.name for endpoint in pair)
    cases = cases_of((first, second), fleet.nics, operations, options)
    if not cases:
        return ProbeResult(findings=(_nothing_in_common(fleet, first, second),))
    programs = {name: site.programs for name, site in fleet.sites.items()}
    plan = json.dumps(plan_of(cases, first, programs))
    total_s = sum(deadline_s(case.size) for case in cases)
    args, more = ["--plan", plan], ["--fixed-port", str(options.port or 0)]
    bind = options.interface is not None
    played = play(fleet.transport, pair, Duet("probes.rdma.probe", args, options.port or 0, bind, total_s, more))
    if played.no_server is not None:
        return ProbeResult(findings=(_no_server(second, *played.no_server),))
    measured = result_of(cases, played.events.of("run"), programs)
    findings = tuple(_with_limit(fleet, finding) for finding in measured.findings)
    return ProbeResult(measured.measurements, (*findings, *_unfinished(pair, played, measured)))


def _with_limit(fleet: _Fleet, finding: Finding) -> Finding:
    """Add to a finding about locked memory how much the login may lock."""
    limit = fleet.sites[finding.host].memlock_bytes
    if finding.subject != "memlock" or limit is None:
        return finding
    return replace(finding, actual=f"{finding.actual}; the login may lock {limit >> 10} KiB there")


def _no_server(host: str, status: Status, reason: str, remedy: str) -> Finding:
    """Return a finding for the end that was to serve and could not even listen."""
    kind = "port_busy" if "in use" in reason else "no_server"
    return failed_finding(kind, f"cannot listen: {reason}", host, status=status, remedy=remedy)


def _unfinished(pair: Pair, played: Played, measured: ProbeResult) -> list[Finding]:
    """Why not all tests were run, where their own findings do not say it."""
    done = played.done
    if done is None or done.ok:
        return []
    client, server = (endpoint.host.name for endpoint in pair)
    reason, remedy = played.reason
    if done.outcome is not Outcome.RAN:
        return [host_finding(NAME, client, Status.UNKNOWN, reason, remedy)]
    unreached = played.events.of("unreached")
    if not unreached:
        return [] if measured.findings else [_path("other", client, server, reason)]
    return [_path(_UNREACHED[unreached[0]["why"]], client, server, f"the server listens there, but: {reason}")]


def _path(kind: str, client: str, server: str, actual: str) -> Finding:
    return failed_finding(kind, f"{client} -> {server}: {actual}", client, server)


def _nothing_in_common(fleet: _Fleet, first: str, second: str) -> Finding:
    ours, theirs = fleet.nics[first], fleet.nics[second]
    common = [rail for rail in ours if rail in theirs]
    if common:
        layers = f"{ours[common[0]].port.link_layer} and {theirs[common[0]].port.link_layer}"
        return _path("link_layer", first, second, layers)
    rails = f"rails {', '.join(ours)} and {', '.join(theirs)}: no NIC has a peer"
    return replace(_path("other", first, second, rails), subject="no_peer", status=Status.UNKNOWN, remedy="")


def _suspects(
    fleet: _Fleet,
    first: ProbeResult,
    operations: Sequence[str],
    options: RdmaOptions,
    switches: Mapping[str, str],
    note: Note,
) -> ProbeResult:
    """Return who is slow, rail by rail, by the first operation of throughput; suspects are measured again."""
    judged = next((operation for operation in operations if not is_latency(operation)), None)
    result = ProbeResult()
    if judged is None:
        return result
    rails = dict.fromkeys(str(measurement.conditions["rail"]) for measurement in first.measurements)
    for number, rail in enumerate(rails):
        of_rail = ProbeResult(tuple(_of(first.measurements, rail, judged)), first.findings)
        again = partial(_again, fleet, rail, judged, options)
        # what is said of the first rail need not be said of each
        slow, second = inquire(NAME, of_rail, again, switches, (lambda _: None) if number else note)
        if len(rails) > 1:
            slow = tuple(replace(finding, actual=f"rail {rail}: {finding.actual}") for finding in slow)
        result += second + ProbeResult(findings=(*slow, *all_short(NAME, of_rail.measurements)))
    return result


def _of(measurements: Sequence[Measurement], rail: str, operation: str) -> list[Measurement]:
    wanted = rail, operation
    return [
        measurement
        for measurement in measurements
        if (measurement.conditions["rail"], measurement.conditions["operation"]) == wanted
    ]


def _again(fleet: _Fleet, rail: str, operation: str, options: RdmaOptions, pairs: Sequence[HostPair]) -> ProbeResult:
    """Measure these pairs once more, on one rail only; nothing where no time is left for it."""
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

"""The tcp probe: iperf3 between pairs of hosts, both directions."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.units import time_text
from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.iperf3 import Iperf3, parse_iperf3
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult, host_finding, path_finding, spread
from nodectl.probes.blame.findings import blame, inquire
from nodectl.probes.blame.fit import HostPair
from nodectl.probes.budget import fit, given_up, has_time, marked
from nodectl.probes.duet import Duet, Pair, Played, connection_remedy, no_server_finding, play
from nodectl.probes.endpoints import find_endpoints
from nodectl.probes.events import Event
from nodectl.probes.nominal import all_short, least_effect, link_rate_gbit_s
from nodectl.probes.options import Whole, option
from nodectl.probes.rounds import planned_rounds, require_two, switch_names
from nodectl.probes.schedule import in_rounds, together
from nodectl.transport.base import Transport

_NAME = "tcp"
_USUAL = Amount(repetitions=3, duration_s=3.0)
# starting Python and the server
_START_S = 0.7
# what a test may take beyond its duration, and a run beyond its tests
_SLACK_S = 35.0


@dataclass(frozen=True, slots=True)
class TcpOptions(ProbeOptions):
    """`streams` is the number of flows of a test."""

    streams: int = option(1, Whole(1, 128), "Flows at the same time.")


def run_tcp(transport: Transport, hosts: Sequence[Host], options: TcpOptions, note: Note) -> ProbeResult:
    """Received Gbit/s of each pair and direction; a pair that fails is a finding, the others are still measured."""
    require_two(hosts, _NAME)
    looked = time.monotonic()
    endpoints, findings = find_endpoints(transport, hosts, _NAME, options)
    # what asking all hosts took, starting each of a pair's two ends takes, too: long where they share a machine
    start_s = max(_START_S, 2 * (time.monotonic() - looked))
    ready = [endpoint for endpoint in endpoints if endpoint.iperf3]
    lacking = partial(host_finding, _NAME, status=Status.UNKNOWN, actual="iperf3 is not installed")
    findings += [lacking(end.name, remedy="install the package iperf3 there") for end in endpoints if not end.iperf3]
    mode, rounds = planned_rounds(ready, options)
    options, amount = fit(PROBE, options, len(rounds), lambda amount: _cost_s(amount, start_s))
    rounds = rounds[: amount.rounds]
    one_round, count = replace(amount, rounds=1), sum(map(len, rounds))
    each_s, whole_s = _cost_s(one_round, start_s), _cost_s(amount, start_s)
    tests = f"{amount.repetitions} x {math.ceil(amount.duration_s)} s each way"
    cost = f"{counted(len(rounds), 'round')} of about {each_s:.0f} s, {time_text(whole_s)} in all"
    note(f"tcp: pairs {mode}: {counted(count, 'pair')}, {tests}; {cost}{given_up(options)}")

    def measure(pair: Pair) -> ProbeResult:
        result = _measure(transport, pair, options, one_round)
        if not (reason := _passing(result)) or not has_time(options, each_s):
            return result
        note(f"tcp: {pair[0].host.name} and {pair[1].host.name} are measured once more: {reason}")
        return _asked_again(result, _measure(transport, pair, options, one_round), reason)

    began = time.monotonic()
    result = ProbeResult(findings=tuple(findings)) + in_rounds(transport, rounds, measure, _NAME, note)
    round_s = (time.monotonic() - began) / max(1, len(rounds))
    result += ProbeResult(findings=blame(result.measurements, result.findings))
    ends = {endpoint.host.name: endpoint for endpoint in ready}

    def again(pairs: Sequence[HostPair]) -> ProbeResult:
        if not has_time(options, each_s):
            return ProbeResult()
        return together(transport, [(ends[a], ends[b]) for a, b in pairs], measure)

    switches = switch_names(end.host for end in ready)
    slow, second = inquire(_NAME, result, again, switches, note, round_s, least_effect(ready))
    short = all_short(_NAME, result.measurements, options.streams)
    return marked(result + second + ProbeResult(findings=(*slow, *short)), options)


# iperf3 reads whole seconds only
def _cost_s(amount: Amount, start_s: float = _START_S) -> float:
    return amount.rounds * (start_s + 2 * amount.repetitions * (math.ceil(amount.duration_s) + 0.2))


def _measure(transport: Transport, pair: Pair, options: TcpOptions, amount: Amount) -> ProbeResult:
    began, bind = time.monotonic(), options.interface is not None
    tests = ["--tests", str(2 * amount.repetitions), "--seconds", str(math.ceil(amount.duration_s))]
    streams = ["--streams", str(options.streams)]
    duet = Duet("probes.tcp", tests, options.port or 0, bind, _cost_s(amount, _SLACK_S), streams)
    played = play(transport, pair, duet)
    if played.no_server is not None:
        return ProbeResult(findings=(no_server_finding(_NAME, pair[1], played.no_server),))
    return _result(pair, played, options, time.monotonic() - began)


def _result(pair: Pair, played: Played, options: TcpOptions, wall_s: float) -> ProbeResult:
    client, server = pair
    tests, done = played.events.of("test"), played.done
    readings = [_readings([test for test in tests if test["reverse"] is reverse]) for reverse in (False, True)]
    findings: list[Finding] = []
    measurements: list[Measurement] = []
    for (runs, reason), ends in zip(readings, (pair, (server, client)), strict=True):
        if runs:
            # the time is the pair's, both directions and all that belongs to it
            measurements.append(_measurement(ends, runs, options).with_conditions(wall_s=round(wall_s, 3)))
        if reason:
            findings.append(
                path_finding(_NAME, ends[0].host.name, ends[1].host.name, reason, connection_remedy(reason))
            )
    if done is not None and done.outcome is not Outcome.RAN:
        findings.append(host_finding(_NAME, client.host.name, Status.UNKNOWN, *played.reason))
    elif done is not None and not done.ok and not findings:
        reason, remedy = played.reason
        findings.append(
            path_finding(_NAME, client.host.name, server.host.name, reason, remedy or connection_remedy(reason))
        )
    return ProbeResult(tuple(measurements), tuple(findings))


def _passing(result: ProbeResult) -> str:
    """Why a path failed, where a busy host may be all of it: a connection that broke, and nothing that stays so."""
    reasons = [finding.actual for finding in result.findings if finding.kind == "path"]
    return reasons[0] if reasons and not any(map(connection_remedy, reasons)) else ""


def _asked_again(first: ProbeResult, second: ProbeResult, reason: str) -> ProbeResult:
    measured = tuple(row.with_conditions(asked_again=reason) for row in second.measurements)
    findings = (
        replace(row, actual=f"{row.actual}, also when it was asked again") if row.kind == "path" else row
        for row in second.findings
    )
    return ProbeResult(measured or first.measurements, tuple(findings))


def _readings(tests: Sequence[Event]) -> tuple[list[Iperf3], str]:
    runs, reason = [], ""
    for test in tests:
        try:
            run = parse_iperf3(test["text"])
        except ParseError as error:
            reason = test["stderr"] or error.message
            continue
        if run.error or run.received_gbit_s is None:
            reason = run.error or "iperf3 did not say what was received"
        else:
            runs.append(run)
    return runs, reason


def _measurement(ends: Pair, runs: Sequence[Iperf3], options: TcpOptions) -> Measurement:
    sender, receiver = ends
    rates = [run.received_gbit_s or 0.0 for run in runs]
    last, value = runs[-1], median(rates)
    # a receiver counts none
    again = [run.retransmits for run in runs if run.retransmits is not None]
    conditions = {
        "streams": options.streams,
        "duration_s": math.ceil(options.duration_s or _USUAL.duration_s),
        "repetitions": len(runs),
        "values_gbit_s": [round(rate, 6) for rate in rates],
        "retransmits": sum(again) if again else None,
        "rtt_mean_ms": last.rtt_mean_ms,
        "congestion": last.congestion,
        "protocol": last.protocol,
        "iperf3": last.version,
        "mtu": [sender.mtu, receiver.mtu],
        "rate_gbit_s": [link_rate_gbit_s(end.host, end.speed_mbit) for end in ends],
        "addresses": [sender.address, receiver.address],
        "interfaces": [sender.interface, receiver.interface],
    }
    names = (sender.host.name, receiver.host.name)
    direction = " -> ".join(names)
    return Measurement(_NAME, names, value, "Gbit/s", direction, None, spread(rates, value), conditions)


def _shown(given: Conditions) -> str:
    retransmits = given.get("retransmits")
    again = "" if retransmits is None else f", {counted(retransmits, 'retransmit')}"
    return f"{counted(given.get('streams'), 'stream')}, {given.get('congestion')}{again}"


PROBE = Probe(
    name="tcp",
    summary="iperf3 between pairs of hosts, both directions.",
    help="The value is what the receiver counted.  What looks slow is measured again, then a host or path is named.",
    run=run_tcp,
    options=TcpOptions,
    results=MeasurementKind(
        units=(Unit("Gbit/s"),), identity=("streams", "interfaces"), places=("interfaces",), shown=_shown
    ),
    usual=_USUAL,
    least=Amount(repetitions=1, duration_s=1.0),
    cost_s=_cost_s,
    in_a_trial=TcpOptions(duration_s=2.0, repetitions=1),
    between_hosts=True,
    groups=("quick", "network"),
    needs=(Need.IPERF3,),
    feels=("sysctl.net", "nic"),
)

"""The latency probe: round trips over TCP between pairs of hosts, each end asking in turn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from time import monotonic

from nodectl.common.counting import counted
from nodectl.common.units import format_value, time_text
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, path_finding, spread
from nodectl.probes.blame.findings import inquire
from nodectl.probes.blame.fit import HostPair
from nodectl.probes.budget import fit, given_up, has_time, marked
from nodectl.probes.duet import Duet, Pair, Played, connection_remedy, no_server_finding, play
from nodectl.probes.endpoints import Endpoint, find_endpoints, on_one_machine
from nodectl.probes.events import Event
from nodectl.probes.rounds import planned_rounds, require_two, switch_names
from nodectl.probes.schedule import in_rounds, together
from nodectl.transport.base import Transport

NAME = "latency"
# of one run: whichever is reached first
EXCHANGES = 2000
_USUAL = Amount(repetitions=3, duration_s=1.0)
# connecting, and starting Python on both hosts
_START_S = 0.7
_WARM_UP_PART = 0.1
_SLACK_S = 30.0
# healthy paths of one fabric differ by some switches, and a busy host by its scheduler
SLOW_TIMES = 1.5
# and hosts of one machine by their processors' sleep and the way between two of its sockets
_FAR_US = 100.0


def run_latency(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """Median round trip in microseconds of each pair and asking end, the 99th percentile beside it."""
    require_two(hosts, NAME)
    looked = monotonic()
    endpoints, findings = find_endpoints(transport, hosts, NAME, options)
    # what asking all hosts took, starting a pair's two ends takes, too: long where they share a machine
    start_s = max(_START_S, monotonic() - looked)
    switches = switch_names(endpoint.host for endpoint in endpoints)
    mode, rounds = planned_rounds(endpoints, options)
    options, amount = fit(PROBE, options, len(rounds), lambda amount: cost_s(amount, start_s))
    rounds, one_round = rounds[: amount.rounds], replace(amount, rounds=1)
    count, cost = sum(map(len, rounds)), time_text(cost_s(amount, start_s))
    wanted = f"{counted(count, 'pair')} in {counted(len(rounds), 'round')}"
    note(f"latency: pairs {mode}, {wanted}, at most {cost}{given_up(options)}")

    def measure(pair: Pair) -> ProbeResult:
        return _measure(transport, pair, options, one_round)

    result = ProbeResult(findings=tuple(findings)) + in_rounds(transport, rounds, measure, NAME, note)
    by_name = {endpoint.host.name: endpoint for endpoint in endpoints}

    def again(pairs: Sequence[HostPair]) -> ProbeResult:
        if not has_time(options, cost_s(one_round)):
            return ProbeResult()
        return together(transport, [(by_name[a], by_name[b]) for a, b in pairs], measure)

    # on a shared machine the median may have waited for its processors: the quickest round trip counts
    shared = on_one_machine(endpoints)
    name = "min_us" if shared else "p50_us"

    def rate(measurement: Measurement) -> float:
        trip_us = measurement.conditions.get(name)
        return 1 / trip_us if isinstance(trip_us, int | float) and trip_us > 0 else 0.0

    usual = median(map(rate, result.measurements)) if shared and result.measurements else 0.0
    least_effect = math.log(max(SLOW_TIMES, 1 + _FAR_US * usual))
    slow, second = inquire(NAME, result, again, switches, note, least_effect=least_effect, rate=rate)
    return marked(result + second + ProbeResult(findings=slow), options)


def cost_s(amount: Amount, start_s: float = _START_S) -> float:
    """Return the seconds at most: a run ends earlier where the exchanges are quick."""
    return amount.rounds * (start_s + 2 * amount.repetitions * amount.duration_s * (1 + _WARM_UP_PART))


def _measure(transport: Transport, pair: Pair, options: ProbeOptions, amount: Amount) -> ProbeResult:
    wishes = {"runs": amount.repetitions, "exchanges": EXCHANGES, "seconds": amount.duration_s}
    args = [f"--{name}={value}" for name, value in wishes.items()]
    deadline_s = cost_s(amount) + _SLACK_S
    played = play(
        transport, pair, Duet("probes.latency", args, options.port or 0, options.interface is not None, deadline_s)
    )
    if played.no_server is not None:
        return ProbeResult(findings=(no_server_finding(NAME, pair[1], played.no_server),))
    measurements = []
    for reverse, ends in ((False, pair), (True, pair[::-1])):
        answers = [event for event in played.events.of("run") if event["reverse"] is reverse]
        if answers:
            measurements.append(_measurement(ends, answers, options))
    return ProbeResult(tuple(measurements), tuple(_failed(pair, played)))


def _failed(pair: Pair, played: Played) -> list[Finding]:
    done = played.done
    if done is None or done.ok:
        return []
    reason, remedy = played.reason
    asking, echoing = (endpoint.host.name for endpoint in pair)
    if done.outcome is not Outcome.RAN:
        return [host_finding(NAME, asking, Status.UNKNOWN, reason, remedy)]
    return [path_finding(NAME, asking, echoing, reason, remedy or connection_remedy(reason))]


def _measurement(ends: tuple[Endpoint, ...], runs: Sequence[Event], options: ProbeOptions) -> Measurement:
    trips: list[Mapping[str, float]] = [run["us"] for run in runs]
    middles = [trip["p50"] for trip in trips]
    value = median(middles)
    conditions: dict[str, object] = {
        "p50_us": value,
        "p99_us": median(trip["p99"] for trip in trips),
        "min_us": min(trip["min"] for trip in trips),
        "max_us": max(trip["max"] for trip in trips),
        "exchanges": [run["count"] for run in runs],
        "message_bytes": 64,
        "duration_s": options.duration_s,
        "repetitions": len(runs),
        "values_us": middles,
        "mtu": [endpoint.mtu for endpoint in ends],
        "addresses": [endpoint.address for endpoint in ends],
        "interfaces": [endpoint.interface for endpoint in ends],
    }
    names = tuple(endpoint.host.name for endpoint in ends)
    return Measurement(NAME, names, value, "us", " -> ".join(names), None, spread(middles, value), conditions)


def _shown(given: Conditions) -> str:
    p99, least = (
        format_value(us, "us") if isinstance(us := given.get(name), int | float) else "? us"
        for name in ("p99_us", "min_us")
    )
    return f"p99 {p99}, min {least}"


PROBE = Probe(
    name=NAME,
    summary="Round trips over TCP between pairs of hosts.",
    help="A run ends with 2000 exchanges of 64 bytes, or with its time.",
    run=run_latency,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("us"),),
        identity=("interfaces",),
        places=("interfaces",),
        shown=_shown,
        caption="a round trip of 64 bytes: the median of them",
    ),
    usual=_USUAL,
    least=Amount(repetitions=1, duration_s=0.05),
    cost_s=cost_s,
    in_a_trial=ProbeOptions(duration_s=0.5, repetitions=1),
    between_hosts=True,
    groups=("quick", "network"),
    feels=("sysctl.net", "nic"),
)

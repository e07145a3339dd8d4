"""The outputs of both ends of tests, as measurements and as findings with the reason of each failure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.perftest import BwRow, LatRow, parse_perftest
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.probes.base import ProbeResult, spread
from nodectl.probes.events import Event
from nodectl.probes.rdma.argv import NAME, PROGRAMS, is_latency
from nodectl.probes.rdma.errors import Failure, Run, classify, failed_finding, kinds
from nodectl.probes.rdma.plan import LOOPBACK, Case
from nodectl.probes.rdma.ready import Nic, Program

_EVIDENCE_CHARS = 4000
_NO_LOOPBACK = "the NIC does not even reach itself, for which no cable is needed: reset it, then change it"


@dataclass(frozen=True, slots=True)
class Reading:
    """One repetition: the row, and the lines of perftest's in which it stands."""

    row: BwRow | LatRow
    printed: str


@dataclass(frozen=True, slots=True)
class Failed:
    """One test that failed, and why."""

    case: Case
    failure: Failure
    evidence: str


def result_of(
    cases: Sequence[Case], events: Iterable[Event], programs: Mapping[str, Mapping[str, Program]]
) -> ProbeResult:
    """Measurements of what worked, one finding for each reason and NIC of what did not."""
    readings: dict[tuple[str, str, str], list[tuple[Case, Reading]]] = defaultdict(list)
    failed = []
    for event in events:
        case = cases[int(event["test"])]
        reading = read(case, event)
        if isinstance(reading, Reading):
            readings[case.rail, case.operation, case.direction].append((case, reading))
        else:
            failed.append(reading)
    measured = tuple(_measurement(runs, programs) for runs in readings.values())
    return ProbeResult(measured, tuple(_findings(failed)))


def read(case: Case, event: Event) -> Reading | Failed:
    """One test's figures, or why there are none."""
    client, server = event.get("client"), event.get("server")
    evidence = "\n".join(
        f"$ {' '.join(run['argv'])}\n{run['stderr']}{run['stdout']}[exit status {run['status']}]"
        for run in (client, server)
        if run
    )[-_EVIDENCE_CHARS:]
    failure = failure_of(client, server, event.get("gone") or "")
    if client is not None and failure is None:
        try:
            parsed = parse_perftest(client["stdout"])
        except ParseError as error:
            failure = Failure("other", error.message)
        else:
            row, lines = parsed.rows[-1], [line.strip() for line in client["stdout"].splitlines()]
            head = [line for line in lines if line.startswith("#bytes")]
            rows = [line for line in lines if line.split()[:1] == [str(row.size_bytes)]]
            printed = "\n".join([*head[-1:], *rows[-1:]])
            if not value_of(row):
                # a processor whose clock it cannot read gives zeros, and `inf`
                return Failed(case, Failure("other", f"perftest could not tell the time: {printed}"), evidence)
            return Reading(row, printed)
    return Failed(case, seen_from_outside(case, event, failure or Failure("other", "nothing was run")), evidence)


def value_of(row: BwRow | LatRow) -> float:
    """Average Gb/s, or typical (else average) microseconds."""
    if isinstance(row, BwRow):
        return row.average_gbit_s or 0.0
    return row.average_us or 0.0 if row.typical_us is None else row.typical_us


def _measurement(runs: Sequence[tuple[Case, Reading]], programs: Mapping[str, Mapping[str, Program]]) -> Measurement:
    case = runs[-1][0]
    readings = [reading for _, reading in runs]
    values = [value_of(reading.row) for reading in readings]
    value, latency = median(values), is_latency(case.operation)
    pair, first = case.path, readings[0].row
    conditions: dict[str, object] = {
        "operation": case.operation,
        "memory": "host" if pair[0].end.gpu is None else "gpu",
        "size_bytes": first.size_bytes,
        "rail": case.rail,
        "device": [nic.port.label for nic in pair],
        "client": case.client,
        # of one host, which no floor of pairs speaks of
        **({"way": case.way} if case.way else {}),
        "repetitions": len(readings),
        "values": values,
        "printed": [reading.printed for reading in readings],
        "duration_s": case.size.seconds,
        "iterations": [reading.row.iterations for reading in readings],
        **_figures([reading.row for reading in readings]),
        **_links(pair),
        "perftest": [programs[host][PROGRAMS[case.operation]].version for host in case.flow],
    }
    unit = "us" if latency else "Gb/s"
    return Measurement(NAME, case.hosts, value, unit, case.direction, None, spread(values, value), conditions)


def _figures(rows: Sequence[BwRow | LatRow]) -> dict[str, object]:
    """Return the peaks of runs of throughput; of latency medians of percentiles, the least and the most of all."""
    peaks = [row for row in rows if isinstance(row, BwRow)]
    if peaks:
        return {
            "peak_gbit_s": [row.peak_gbit_s for row in peaks],
            "message_rate_mpps": [row.message_rate_mpps for row in peaks],
        }
    folds: dict[str, Callable[[Sequence[float]], float]] = {
        **dict.fromkeys(("average_us", "p99_us", "p999_us"), median),
        "min_us": min,
        "max_us": max,
    }
    known = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in folds}
    return {name: fold(known[name]) if known[name] else None for name, fold in folds.items()}


def _links(pair: Sequence[Nic]) -> dict[str, object]:
    ports = [nic.port for nic in pair]
    conditions: dict[str, object] = {
        "link_layer": ports[0].link_layer,
        "rate_gbit_s": [port.rate_gbit_s for port in ports],
        "mtu": [port.mtu_active for port in ports],
        "numa_node": [port.numa_node for port in ports],
        "gid_index": [nic.end.gid_index for nic in pair],
    }
    if pair[0].end.gpu is not None:
        conditions["gpu"] = [nic.end.gpu for nic in pair]
        conditions["gpu_path"] = [nic.gpu_path for nic in pair]
        conditions["gpu_method"] = ["DMA-BUF" if nic.end.dmabuf else "peer memory" for nic in pair]
    return conditions


def _findings(failed: Sequence[Failed]) -> list[Finding]:
    grouped: dict[tuple[Any, ...], list[Failed]] = defaultdict(list)
    for failure in failed:
        kind, case = failure.failure.kind, failure.case
        hosts, place = _blamed(failure)
        where = place if kinds()[kind].is_host else case.rail
        grouped[kind, tuple(sorted(hosts)), where].append(failure)
    findings = []
    for (kind, _, _), failures in grouped.items():
        first, (hosts, place) = failures[0], _blamed(failures[0])
        tests = ", ".join(dict.fromkeys(failure.case.operation for failure in failures))
        remedy = "" if first.case.way != LOOPBACK or kinds()[kind].is_host else _NO_LOOPBACK
        actual = f"{place}, {tests}: {first.failure.text}"
        findings.append(failed_finding(kind, actual, *hosts, remedy=remedy, evidence=first.evidence))
    return findings


def _blamed(failed: Failed) -> tuple[tuple[str, ...], str]:
    case = failed.case
    if kinds()[failed.failure.kind].is_host:
        end = 1 if failed.failure.by_partner else 0
        return ((case.client, case.server)[end],), case.nics[end].port.label
    labels = [nic.port.label for nic in case.path]
    if case.way is not None:
        return case.hosts, " -> ".join(dict.fromkeys(labels))
    return case.flow, " -> ".join(f"{host} {label}" for host, label in zip(case.flow, labels, strict=True))


def failure_of(client: Event | None, server: Event | None, gone: str) -> Failure | None:
    """Return the failure by what both ends said; the other end's way is lost where it is `gone`."""
    served = None if server is None else _run(server, is_server=True)
    if client is not None:
        # a server that had ended before the client came says so itself
        failure = classify(_run(client), served, server_listens=served.timed_out or None if served else None)
    else:
        failure = None if served is None else classify(served)
        failure = replace(failure, by_partner=True) if failure else None
    if gone and (failure is None or failure.kind in ("peer_lost", "timeout", "killed", "other", "no_client")):
        return Failure("link_cut", f"the other end does not answer any more: {gone}")
    return failure


def _run(ended: Event, *, is_server: bool = False) -> Run:
    return Run(ended["argv"], ended["status"], ended["stdout"], ended["stderr"], ended["timed_out"], is_server)


def seen_from_outside(case: Case, event: Event, failure: Failure) -> Failure:
    """Return the failure by the ports, if nothing is carried: a cut link, or a firewall for RoCE's packets."""
    ends = [(event.get(role) or {}).get("stdout", "") for role in ("client", "server")]
    # once both ends have met, what is slow or stuck is RDMA, not their first talk
    is_stuck = failure.kind == "timeout" and all("remote address:" in text for text in ends)
    if event.get("gone") or not (failure.kind == "link_cut" or is_stuck):
        return failure
    received = []
    for role, host, nic in zip(("client", "server"), (case.client, case.server), case.nics, strict=True):
        link = (event.get(role) or {}).get("link") or {}
        if link.get("state") not in (None, "ACTIVE"):
            return Failure("link_cut", f"{nic.port.label} of {host} is {link['state']} now; {failure.text}")
        before, after = nic.port.carrier_changes, link.get("carrier_changes")
        if before is not None and after is not None and after != before:
            return Failure("link_cut", f"{nic.port.netdev} of {host} lost its link meanwhile; {failure.text}")
        received.append(link.get("received"))
    addresses = {nic.gid.ipv4 for nic in case.nics if nic.gid is not None and nic.gid.ipv4}
    same_way = len(addresses) == 2 and addresses == set(event.get("addresses") or ())
    # TCP passes between the very same addresses, before and after, and of RDMA not one packet comes in at an end
    if same_way and 0 in received:
        text = f"TCP passes between the same addresses and both ports are up, RoCE (UDP 4791) does not; {failure.text}"
        return Failure("firewall", text)
    return failure

"""One group of ranks measured by torch.distributed, and what their words come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodectl.common.units import format_size
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult, host_finding
from nodectl.probes.budget import left_s
from nodectl.probes.events import Event
from nodectl.probes.gang import Member, Played, culprits, failure_of, play
from nodectl.probes.nccl.fleet import NAME, Group, common
from nodectl.probes.nccl.proof import HostLog, choice_in, host_log_of, judged, sockets_judged
from nodectl.probes.nccl.run import Case, Run, measurements
from nodectl.transport.base import Transport

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
    """Yield each collective that the backend lacks, in its own words, and each floor's size that does not fit here."""
    lacks = {event["collective"]: event["text"] for event in _events(played, "unsupported")}
    skipped = [(name, f"{backend} has no {name}", text) for name, text in lacks.items()]
    for event in _events(played, "left"):
        subject = f"{event['collective']} {format_size(event['asked_bytes'])}"
        skipped.append((subject, f"a floor's size: {event['reason']}", ""))
    for subject, actual, evidence in skipped:
        status, hosts = Status.SKIPPED, group.hosts
        yield Finding(hosts[0], NAME, status, subject, actual=actual, evidence=evidence, hosts=hosts)


def _incomplete(group: Group, cases: int, reasons: Sequence[str]) -> Finding:
    """Return the finding for a run that was cut short, which is never a pass."""
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
    """Yield findings of ranks that met if the data did not go the way it should."""
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

"""One group of ranks measured by torch.distributed, and what their words come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodectl.common.units import format_size
from nodectl.facts.parsers.nccl.nccl_log import NcclChoice
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.probes.base import ProbeResult
from nodectl.probes.budget import left_s
from nodectl.probes.events import Event
from nodectl.probes.gang import Member, Played, culprits, failure_of, play
from nodectl.probes.nccl.fleet import NAME, Group, common
from nodectl.probes.nccl.proof import HostLog, choice_in, host_log_of, judged, sockets_judged
from nodectl.probes.nccl.run import Case, Run, incomplete, left_out, measurements, unsupported, wrong
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
    logs = [_told(member) for member in played] if run.backend == "nccl" else []
    cases = _cases(played, group.ranks)
    cut = [
        f"{event['collective']} {format_size(event['asked_bytes'])}: {event['reason']}"
        for event in _events(played, "cut")
    ]
    failed = [_failed(culprit) for culprit in culprits(played)]
    whole = not cut and not failed and len(_events(played, "done")) == group.ranks
    seen = {case.collective for case in cases} | {event["collective"] for event in _events(played, "unsupported")}
    if whole:
        cut += [f"{name}: not all ranks told what it took" for name in run.collectives if name not in seen]
    complete = whole and not cut
    measured = measurements(cases, group, run, logs, _loaded(played), complete=complete)
    left = [
        left_out(group.hosts, event["collective"], event["asked_bytes"], event["reason"])
        for event in _events(played, "left")
    ]
    findings = [
        *[
            wrong(
                member.member.host.name,
                event["collective"],
                event["size_bytes"],
                event["wrong"],
                f"on rank {event['rank']}",
            )
            for member in played
            for event in member.events.of("times")
            if event["wrong"]
        ],
        *_unsupported(played, group, run.backend),
        *left,
        *_proven(played, group, run, logs),
        *failed,
    ]
    if not complete:
        findings.append(
            incomplete(group, len(cases), [*cut, *(f"{failure.host}: {failure.actual}" for failure in failed)])
        )
    return ProbeResult(tuple(measured), tuple(findings))


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
            "more": run.more_text,
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
    """Return the cases that every rank finished; a repetition takes as long as its slowest rank."""
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
            _chosen(events),
        )
        for (collective, size_bytes), events in events_of.items()
        if len(events) == ranks
    ]


def _chosen(events: Sequence[Event]) -> NcclChoice | None:
    """Return NCCL's choice by the line that one rank logged while this case was checked."""
    return next((chosen for event in events if (chosen := choice_in(event.get("chosen")))), None)


def _loaded(played: Sequence[Played]) -> dict[str, object]:
    """Return what was loaded and on what it ran, by host where they differ."""
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
    """Return the value that all ranks have, or the list of their values."""
    values = sorted({str(event[key]) for event in events if event.get(key) is not None})
    return values[0] if len(values) == 1 else values or None


def _interfaces(played: Played) -> dict[str, int]:
    """Return the number of connections of all ranks of a host, by interface."""
    connections: dict[str, int] = defaultdict(int)
    for event in played.events.of("sockets"):
        for name, count in event["interfaces"].items():
            connections[name] += count
    return dict(connections)


def _told(played: Played) -> HostLog:
    lines = [line for event in played.events.of("nccl_log") for line in event["lines"]]
    return host_log_of(played.member.host.name, lines)


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


def _unsupported(played: Sequence[Played], group: Group, backend: str) -> list[Finding]:
    """Skipped, once for a collective, with the backend's own words as evidence."""
    lacks = {event["collective"]: event["text"] for event in _events(played, "unsupported")}
    return [unsupported(group.hosts, name, f"{backend} has no {name}", text) for name, text in lacks.items()]


def _failed(played: Played) -> Finding:
    finding = failure_of(NAME, played)
    # it only saw another fail, and none said so of itself
    return replace(finding, kind="") if played.blames_peer else finding

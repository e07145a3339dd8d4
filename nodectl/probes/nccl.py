"""The nccl probe: torch.distributed collectives over the hosts, NCCL on GPUs and gloo on CPUs."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from nodectl.errors import UsageError
from nodectl.facts.catalogue import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import Amount, given_up, marked, said, within
from nodectl.probes.endpoints import Endpoint, failure, find_endpoints
from nodectl.probes.events import Event
from nodectl.probes.formulas import COLLECTIVES, bandwidth
from nodectl.probes.gang import Member, Played, culprits, play
from nodectl.probes.pairs import rounds_for
from nodectl.probes.parallel import at_once
from nodectl.transport.base import Transport

_NAME = "nccl"
REPETITIONS = 5
# a repetition of small operations holds as many as fit into this time
DURATION_S = 0.05
_LEAST = Amount(repetitions=1, duration_s=0.01)
# importing torch, meeting
_START_S = 8.0
# how long one operation, and meeting at the start, may take before a rank gives up on the others
_COLLECTIVE_S = 120.0
_RUN_S = 3600.0
_NOT_PROVISIONED = "run `nodectl provision` for it, or name its environment with the variable pytorch_venv"


def run_nccl(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """Bus bandwidth of each collective and size, over all hosts at once or between pairs."""
    unknown = [name for name in options.collectives if name not in COLLECTIVES]
    if unknown:
        raise UsageError(f"no collective '{unknown[0]}'", f"one of: {', '.join(COLLECTIVES)}")
    endpoints, findings = find_endpoints(transport, hosts, _NAME, options)
    ready = [each for each in endpoints if each.torch]
    findings += [_without_torch(each) for each in endpoints if not each.torch]
    result = ProbeResult(findings=tuple(findings))
    backend = _backend(ready)
    if sum(_ranks_on(each, backend) for each in ready) < 2:
        return result + _too_few(hosts, ready)
    pairs = options.scope == "pairs"
    rounds: list[list[tuple[Endpoint, ...]]] = [[tuple(ready)]]
    if pairs:
        rounds = [list(each) for each in rounds_for(options.pairs, ready)]
    cases = len(options.collectives or COLLECTIVES) * len(options.sizes_bytes)
    wish = Amount(options.repetitions or REPETITIONS, options.duration_s or DURATION_S, len(rounds))
    options, amount = within(_NAME, options, wish, _LEAST, lambda each: _cost_s(each, cases))
    rounds = rounds[: amount.rounds]
    told = f", {len(rounds)} rounds of pairs" if pairs else ""
    note(
        f"nccl: backend {backend}, {len(ready)} hosts{told}, {said(_cost_s(amount, cases))} or more{given_up(options)}"
    )
    for groups in rounds:
        for each in at_once(transport, groups, lambda group: _measure(transport, group, backend, options)):
            result += each
    return marked(result, options)


def _cost_s(amount: Amount, cases: int) -> float:
    """At least: a single large operation may take longer than a repetition is meant to."""
    return amount.rounds * (_START_S + cases * amount.repetitions * amount.duration_s)


def _without_torch(endpoint: Endpoint) -> Finding:
    host = endpoint.host
    return host_finding(_NAME, host.name, Status.UNKNOWN, f"no torch in {venv_of(host)}", _NOT_PROVISIONED)


def _backend(endpoints: Sequence[Endpoint]) -> str:
    """NCCL where every host has GPUs and a torch that is not built for CPUs."""
    return "nccl" if all(each.gpus and "+cpu" not in (each.torch or "") for each in endpoints) else "gloo"


def _ranks_on(endpoint: Endpoint, backend: str) -> int:
    return endpoint.gpus if backend == "nccl" else 1


def _too_few(hosts: Sequence[Host], ready: Sequence[Endpoint]) -> ProbeResult:
    if len(hosts) == len(ready):
        raise UsageError("the nccl probe needs two ranks, and one host with one is selected", "widen --limit")
    ready_names = ", ".join(each.host.name for each in ready) or "no host"
    alone = [each.host.name for each in ready]
    return ProbeResult(
        findings=tuple(
            host_finding(_NAME, name, Status.UNKNOWN, f"not measured: only {ready_names} is ready") for name in alone
        )
    )


def _measure(transport: Transport, group: Sequence[Endpoint], backend: str, options: ProbeOptions) -> ProbeResult:
    """One group of hosts from start to end."""
    played = play(transport, _members(group, backend, options), _RUN_S)
    hosts = tuple(each.host.name for each in group)
    conditions = _conditions(group, played, backend, options)
    measurements, findings = _results(played, hosts, conditions)
    return ProbeResult(tuple(measurements), (*findings, *_failures(played)))


def _members(group: Sequence[Endpoint], backend: str, options: ProbeOptions) -> list[Member]:
    first = group[0]
    world = sum(_ranks_on(each, backend) for each in group)
    members, base = [], 0
    for each in group:
        ranks = _ranks_on(each, backend)
        own = {
            "rank-base": base,
            "world-size": world,
            "nproc": ranks,
            "master-addr": first.address,
            "master-port": options.port or first.free_port,
            "backend": backend,
            "interface": each.interface,
            "nccl-interface": options.interface or "",
            "collectives": ",".join(options.collectives or COLLECTIVES),
            "sizes": ",".join(map(str, options.sizes_bytes)),
            "repetitions": options.repetitions or REPETITIONS,
            "seconds": options.duration_s or DURATION_S,
            "timeout": _COLLECTIVE_S,
        }
        args = tuple(f"--{name}={value}" for name, value in own.items())
        members.append(Member(each.host, "probe_nccl", args, f"{venv_of(each.host)}/bin/python"))
        base += ranks
    return members


def _conditions(
    group: Sequence[Endpoint], played: Sequence[Played], backend: str, options: ProbeOptions
) -> dict[str, object]:
    ready = [event for each in played for event in each.events.of("ready")]
    return {
        "backend": backend,
        "ranks": sum(_ranks_on(each, backend) for each in group),
        "repetitions": options.repetitions or REPETITIONS,
        "torch": _common(ready, "torch"),
        "nccl": _common(ready, "nccl"),
        "device": _common(ready, "device"),
        "interfaces": [each.interface for each in group],
        "mtu": [each.mtu for each in group],
        # gloo has one, NCCL does not tell without its log
        "algorithm": None,
        "protocol": None,
    }


def _common(events: Sequence[Event], key: str) -> object:
    """The value that all ranks have, or the list of their values."""
    values = sorted({str(event[key]) for event in events if event[key] is not None})
    return values[0] if len(values) == 1 else values or None


def _results(
    played: Sequence[Played], hosts: tuple[str, ...], conditions: dict[str, object]
) -> tuple[list[Measurement], list[Finding]]:
    """A measurement for each case that every rank finished; findings for wrong results and what the backend lacks."""
    cases: dict[tuple[str, int], list[tuple[Event, str]]] = defaultdict(list)
    for each in played:
        for event in each.events.of("times"):
            cases[event["collective"], event["size_bytes"]].append((event, each.member.host.name))
    measurements = [
        _measurement(name, size_bytes, [event for event, _ in told], hosts, conditions)
        for (name, size_bytes), told in cases.items()
        if len(told) == conditions["ranks"]
    ]
    wrong = [_wrong(event, host) for told in cases.values() for event, host in told if event["wrong"]]
    return measurements, wrong + _unsupported(played, str(conditions["backend"]))


def _measurement(
    collective: str, size_bytes: int, ranks: Sequence[Event], hosts: tuple[str, ...], conditions: dict[str, object]
) -> Measurement:
    # a repetition is as slow as its slowest rank
    slowest_s = [max(times) for times in zip(*(event["seconds"] for event in ranks), strict=True)]
    bandwidths = [bandwidth(collective, size_bytes, len(ranks), each) for each in slowest_s]
    value = median(each.busbw_gb_s for each in bandwidths)
    own = {
        "collective": collective,
        "size_bytes": size_bytes,
        "algbw_gb_s": median(each.algbw_gb_s for each in bandwidths),
        "busbw_gb_s": value,
        "time_us": median(slowest_s) * 1e6,
        "iterations": ranks[0]["iterations"],
        "wrong": sum(event["wrong"] for event in ranks),
    }
    off = spread([each.busbw_gb_s for each in bandwidths], value)
    return Measurement(_NAME, hosts, value, "GB/s", "", None, off, {**own, **conditions})


def _wrong(event: Event, host: str) -> Finding:
    subject = f"{event['collective']} {event['size_bytes']} B"
    actual = f"{event['wrong']} wrong elements on rank {event['rank']}"
    remedy = "run the probe again over pairs (--scope pairs): the host that is in every wrong pair is at fault"
    return Finding(
        host, _NAME, Status.FAILED, subject, "drain", "0 wrong elements", actual, remedy, kind="host", hosts=(host,)
    )


def _unsupported(played: Sequence[Played], backend: str) -> list[Finding]:
    """Skipped, once for a collective, with the backend's own words as evidence."""
    lacks = {e["collective"]: e["text"] for each in played for e in each.events.of("unsupported")}
    hosts = tuple(each.member.host.name for each in played)
    return [
        Finding(hosts[0], _NAME, Status.SKIPPED, name, actual=f"{backend} has no {name}", evidence=text, hosts=hosts)
        for name, text in lacks.items()
    ]


def _failures(played: Sequence[Played]) -> list[Finding]:
    """A finding for each host that failed by itself; the others ended with it."""
    return [_failed(each) for each in culprits(played)]


def _failed(played: Played) -> Finding:
    host = played.member.host.name
    if played.done is None:
        return host_finding(_NAME, host, Status.UNKNOWN, "stopped answering while it was measured", "is its link up?")
    status = Status.FAILED if played.done.outcome is Outcome.RAN else Status.UNKNOWN
    return host_finding(_NAME, host, status, *failure(played.done, played.events))

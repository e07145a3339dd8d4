"""The nccl probe: collectives over a node, pairs or all hosts, NCCL on GPUs and gloo on CPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from nodectl.common.counting import counted
from nodectl.common.units import format_size, parse_size, time_text
from nodectl.errors import ProfileError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeResult, host_finding
from nodectl.probes.blame.findings import inquire
from nodectl.probes.blame.fit import HostPair
from nodectl.probes.budget import fit, given_up, has_time, left_s, marked
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.nccl.fleet import (
    NAME,
    Fleet,
    Group,
    Route,
    find_fleet,
    find_routes,
    group_of,
    node_groups,
)
from nodectl.probes.nccl.models import COLLECTIVES
from nodectl.probes.nccl.run import SCOPES, USUAL, NcclOptions, Run, measure_group
from nodectl.probes.nominal import least_effect
from nodectl.probes.options import Sizes, refuse_unknown
from nodectl.probes.rounds import TooFewError, more, planned_rounds, switch_names
from nodectl.probes.schedule import by_machine, together, turns
from nodectl.profiles.gpus import floors_of
from nodectl.profiles.host import WITHOUT_REFERENCE, hardware_name, hardware_of
from nodectl.profiles.links import ring
from nodectl.profiles.schema import Floor
from nodectl.transport.base import Transport

# over what other way than the usual one: nothing that is measured here
_OTHER_WAYS = {"over", "rail"}


def floor_cases(
    ready: Sequence[Endpoint], routes: Mapping[str, Route], profile_dirs: Sequence[Path], nodes: int
) -> dict[str, tuple[int, ...]]:
    """Sizes in bytes by collective, of floors for so many nodes together."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for host in ready:
        for floor in _floors(host, routes.get(host.name, Route()), profile_dirs, nodes):
            if size := parse_size(str(floor.conditions.get("size", ""))):
                sizes[str(floor.conditions["collective"])].add(size)
    return {collective: tuple(sorted(floor_sizes)) for collective, floor_sizes in sizes.items()}


def _floors(ready: Endpoint, route: Route, profile_dirs: Sequence[Path], nodes: int) -> Sequence[Floor]:
    """Return the floors of the host's profile and of its kind of GPU; without any, what its links predict."""
    try:
        hardware, gpus = hardware_of(ready.host, profile_dirs), ready.gpus
    except ProfileError:
        # said where measurements are held against it
        return ()
    if hardware_name(ready.host) == WITHOUT_REFERENCE:
        return ()

    def is_for_these(floor: Floor) -> bool:
        given = floor.conditions
        if floor.probe != NAME or given.get("collective") not in COLLECTIVES or _OTHER_WAYS & given.keys():
            return False
        if nodes > 1:
            most = given.get("nodes")
            return isinstance(most, int) and most >= nodes and given.get("ranks_per_host", gpus) == gpus
        return "nodes" not in given and given.get("gpus", gpus) == gpus and floor.link_class in (None, route.link_class)

    fitting = [*filter(is_for_these, (*hardware.floors, *floors_of(route.gpu)))]
    foreseen = ring(route.inside_gb_s, route.link_class) if nodes == 1 and gpus > 1 else None
    return fitting or ([foreseen] if foreseen else [])


# importing torch, meeting
_START_S = 8.0
# of each node by itself, before all together
_FIRST = "all_reduce"
# of a run if nothing is asked for
_CASES = len(COLLECTIVES) * len(NcclOptions().sizes.bytes)

Rounds = list[list[Group]]


def run_nccl(transport: Transport, hosts: Sequence[Host], options: NcclOptions, note: Note) -> ProbeResult:
    """Bus bandwidth of each collective and size, and proof of the way that the data went."""
    refuse_unknown("collective", options.collectives, COLLECTIVES)
    refuse_unknown("scope", [options.scope], SCOPES)
    fleet = find_fleet(transport, hosts, options)
    result = ProbeResult(findings=fleet.findings)
    if lacking := _too_few(hosts, fleet, options):
        return result + lacking
    has_gpus, ready = fleet.backend == "nccl", [host.host for host in fleet.ready]
    routes = find_routes(transport, ready, options.forks) if has_gpus else {}
    run = _with_floors(Run(fleet.backend, options, routes), fleet)
    first = _node_first(run, fleet)
    how, rounds = _rounds(fleet, run)
    in_turn = turns(node_groups(fleet), options.forks)

    def cost_s(amount: Amount) -> float:
        rounds_s = (in_turn if options.by_itself else 1) * _cost_s(amount, len(run.every))
        return rounds_s + (in_turn * _cost_s(replace(amount, rounds=1), len(first.every)) if first else 0.0)

    if first and not has_time(options, cost_s(PROBE.least)):
        first = None  # what was asked for goes before
    options, amount = fit(PROBE, options, len(rounds), cost_s)
    # large operations take their own time; a budget ends that, too
    cost, room_s = f"{time_text(cost_s(amount))} or more", left_s(options.ends_at)
    if room_s is not None:
        cost += f", {time_text(max(0.0, room_s))} at most: sizes that would take longer are left out"
    note(f"nccl: {'NCCL' if has_gpus else 'gloo on CPUs, since NCCL needs GPUs'}; {how}, {cost}{given_up(options)}")
    run = replace(run, options=options)
    if options.by_itself:
        result += ProbeResult(findings=_alone(fleet))
    if first:
        note(f"nccl: each host by itself first: {_FIRST} at {', '.join(format_size(size) for _, size in first.every)}")
        of_first = replace(first.options, repetitions=options.repetitions, duration_s=options.duration_s)
        result += _round(transport, node_groups(fleet), replace(first, options=of_first))
    for groups in rounds[: amount.rounds]:
        result += _round(transport, groups, run)
    if options.scope == "all":
        result = _without_shared_blame(result, run.every)
    if options.scope == "pairs":
        result += _blame(transport, fleet, run, result, switch_names(ready), note)
    return marked(result, options)


def _with_floors(run: Run, fleet: Fleet) -> Run:
    nodes = {"node": 1, "all": len(fleet.ready)}.get(run.options.scope, 0)
    if run.backend != "nccl" or not run.options.sizes.usual or not nodes:
        return run
    floor_sizes = floor_cases(fleet.ready, run.routes, run.options.profile_dirs, nodes)
    more = {
        name: tuple(size for size in sizes if size not in run.options.sizes.bytes)
        for name, sizes in floor_sizes.items()
        if name in run.collectives
    }
    return replace(run, more={name: sizes for name, sizes in more.items() if sizes})


def _node_first(run: Run, fleet: Fleet) -> Run | None:
    """Return the run of each host by itself that goes before that of all GPUs: a slow host is slow over all."""
    several = len(fleet.ready) > 1 and any(host.gpus > 1 for host in fleet.ready)
    if run.backend != "nccl" or run.options.scope != "all" or not run.options.sizes.usual or not several:
        return None
    if _FIRST not in run.collectives:
        return None
    only = replace(run.options, scope="node", collectives=(_FIRST,))
    return _with_floors(replace(run, options=only, more={}), fleet)


def _too_few(hosts: Sequence[Host], fleet: Fleet, options: NcclOptions) -> ProbeResult | None:
    ready = fleet.ready
    ranks = group_of(ready, fleet.backend).ranks
    if options.by_itself and ready:
        if fleet.backend != "nccl" or any(host.gpus > 1 for host in ready):
            return None
        return ProbeResult(findings=_alone(fleet))
    needed = 2 if options.scope == "pairs" else 1
    if len(ready) >= needed and ranks >= 2:
        return None
    if len(hosts) == len(ready):
        remedy = f"{more(hosts)}, or measure each host by itself with --scope node"
        raise TooFewError("the nccl probe needs two ranks, and one host with one is selected", remedy)
    names = ", ".join(host.name for host in ready) or "no host"
    actual = f"not measured: only {names} is ready"
    return ProbeResult(findings=tuple(host_finding(NAME, host.name, Status.UNKNOWN, actual) for host in ready))


def _alone(fleet: Fleet) -> tuple[Finding, ...]:
    actual = "a single GPU has no other to exchange data with"
    alone = [host for host in fleet.ready if fleet.backend == "nccl" and host.gpus < 2]
    return tuple(host_finding(NAME, host.name, Status.SKIPPED, actual) for host in alone)


def _rounds(fleet: Fleet, run: Run) -> tuple[str, Rounds]:
    scope, count = run.options.scope, len(fleet.ready)
    if run.options.by_itself:
        return f"{counted(count, 'host')}, each by itself", [node_groups(fleet)]
    if scope == "pairs":
        how, planned = planned_rounds(fleet.ready, run.options)
        rounds = [[group_of(pair, fleet.backend) for pair in pairs_of_round] for pairs_of_round in planned]
        return f"{counted(count, 'host')}, pairs {how}: {counted(len(rounds), 'round')}", rounds
    return f"{counted(count, 'host')} together", [[group_of(fleet.ready, fleet.backend)]]


def _round(transport: Transport, groups: Sequence[Group], run: Run) -> ProbeResult:
    one = partial(measure_group, transport, run=run)
    if run.options.by_itself:
        # hosts that are one machine would share its processors
        able = [group for group in groups if group.ranks > 1]
        return by_machine(transport, able, one, run.options.forks)
    return together(transport, groups, one)


def _blame(
    transport: Transport, fleet: Fleet, run: Run, first: ProbeResult, switches: dict[str, str], note: Note
) -> ProbeResult:
    by_host = {host.name: host for host in fleet.ready}

    def measure(pairs: Sequence[HostPair], collective: str, size_bytes: int) -> ProbeResult:
        only = replace(run.options, collectives=(collective,), sizes=Sizes((size_bytes,)))
        once = replace(run, options=only)
        if not has_time(only, _cost_s(Amount(run.repetitions, run.duration_s), 1)):
            return ProbeResult()
        groups = [group_of([by_host[name] for name in pair], fleet.backend) for pair in pairs]
        return _round(transport, groups, once)

    slow, again = _blamed(first, measure, switches, note, least_effect(fleet.ready))
    return again + ProbeResult(findings=slow)


MeasurePairs = Callable[[Sequence[HostPair], str, int], ProbeResult]


def _blamed(
    first: ProbeResult, measure: MeasurePairs, switches: Mapping[str, str], note: Note, least_effect: float = 0.0
) -> tuple[tuple[Finding, ...], ProbeResult]:
    """Return findings and what was measured again; by one collective at its large size, never by an average over sizes.

    `least_effect` is as Inquiry has it.
    """
    large = [row for row in first.measurements if len(row.hosts) == 2 and row.conditions["verdict_size"] == "large"]
    if not large:
        return (), ProbeResult()
    judged = [row for row in large if row.conditions["collective"] == large[0].conditions["collective"]]
    collective, size = str(judged[0].conditions["collective"]), judged[0].conditions["size_bytes"]
    kept: list[Measurement] = []

    def again(pairs: Sequence[HostPair]) -> ProbeResult:
        second = measure(pairs, collective, size if isinstance(size, int) else 0)
        kept.extend(second.measurements)
        return ProbeResult(_both_ways(second.measurements), second.findings)

    looked = ProbeResult(_both_ways(judged), first.findings)
    slow, seen = inquire(NAME, looked, again, switches, note, least_effect=least_effect)
    # a collective has no direction: each pair stands once in the result
    stages = {
        (measurement.hosts, measurement.conditions["time_us"]): measurement.conditions.get("again")
        for measurement in seen.measurements
    }
    marked = [
        measurement.with_conditions(again=stages.get((measurement.hosts, measurement.conditions["time_us"])))
        for measurement in kept
    ]
    return slow, ProbeResult(tuple(marked), seen.findings)


def _both_ways(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Each pair once in either direction: a collective loads both, and blame knows only directions."""
    return tuple(way for pair in measurements for way in (pair, replace(pair, hosts=pair.hosts[::-1])))


Case = tuple[str, int]
_BAD = (Status.FAILED, Status.UNKNOWN)
_REMEDY = "`nodectl probe nccl --scope pairs` measures pairs of these hosts, and names who fails"


def _without_shared_blame(result: ProbeResult, cases: Sequence[Case]) -> ProbeResult:
    """Return the result, with nobody to blame for a failure that several hosts saw, or none names as its own.

    `cases` are all that were asked for.
    """
    measured = [(each.conditions["collective"], each.conditions["size_bytes"]) for each in result.measurements]
    # ranks that ended and results that are wrong; not what is said of the way that the data went
    subjects = {"", *(f"{name} {size} B" for name, size in (*measured, *cases))}
    bad = [finding for finding in result.findings if finding.status in _BAD and finding.kind != "incomplete"]
    failures = [finding for finding in bad if finding.subject in subjects]
    if len({failure.host for failure in failures if failure.kind == "host"}) == 1:
        return result
    findings = (
        replace(finding, kind="", action="none", remedy=_REMEDY) if finding in failures else finding
        for finding in result.findings
    )
    return ProbeResult(result.measurements, tuple(findings))


def _cost_s(amount: Amount, cases: int = _CASES) -> float:
    """Return the seconds at least: a single large operation may take longer than a repetition is meant to."""
    return amount.rounds * (_START_S + cases * amount.repetitions * amount.duration_s)


def _shown(given: Conditions) -> str:
    size_bytes = given.get("size_bytes")
    sized = format_size(size_bytes) if isinstance(size_bytes, int) else "?"
    parts = [f"{given.get('collective')} {sized}", f"{given.get('backend')}", counted(given.get("ranks"), "rank")]
    parts.append("/".join(str(given[name]) for name in ("algorithm", "protocol") if given.get(name)))
    parts += [str(given[name]) for name in ("network",) if isinstance(given.get(name), str)]
    model, busbw = given.get("model_busbw_gb_s"), given.get("busbw_gb_s")
    if isinstance(model, int | float) and isinstance(busbw, int | float) and model:
        limit = "network allows" if given.get("model_limit") == "network" else "links inside allow"
        parts.append(f"{100 * busbw / model:.0f} % of the {model:.4g} GB/s that the {limit}")
    return ", ".join(filter(None, parts))


PROBE = Probe(
    name=NAME,
    summary="Collectives over all hosts: NCCL on GPUs, gloo without.",
    help="The value is nccl-tests' bus bandwidth.  NCCL's log must prove which way the data went.",
    run=run_nccl,
    options=NcclOptions,
    results=MeasurementKind(
        units=(Unit("GB/s", beside=("Gbit/s", 8), word="busbw"),),
        identity=("collective", "backend", "ranks", "scope", "interfaces", "device", "engine"),
        places=("interfaces",),
        shown=_shown,
        caption="VALUE is the bus bandwidth (busbw) of nccl-tests: the rate of each link, however many ranks there are",
    ),
    usual=USUAL,
    least=Amount(repetitions=1, duration_s=0.01),
    cost_s=_cost_s,
    in_a_trial=NcclOptions(
        duration_s=0.1, repetitions=3, sizes=Sizes((4 << 10, 256 << 10, 16 << 20)), collectives=("all_reduce",)
    ),
    between_hosts=True,
    has_ranks=True,
    groups=("quick", "network", "gpu"),
    needs=(Need.TORCH,),
    floors=("gpus", "nvls", "over", "nodes", "ranks_per_host"),
    feels=("sysctl", "limits", "nic", "gpu", "nccl"),
)

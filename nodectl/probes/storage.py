"""The storage probe: fio on each host, on the path that a job would use, and the fleet held against itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nodectl.common.units import MIB
from nodectl.errors import ParseError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.parsers.linux.fio import FioJob, parse_fio
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import fit, given_up, has_time, marked, said
from nodectl.probes.endpoints import failure
from nodectl.probes.events import Event, Events
from nodectl.probes.options import Text, option
from nodectl.probes.outliers import Slow, best_run, better, hardware_names, slow
from nodectl.probes.schedule import by_machine, turns
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

NAME = "storage"
# of one job, and of the large file at most
_USUAL = Amount(repetitions=3, duration_s=2.0)
SIZE_BYTES = 1024 * MIB
_LOOK_S, _SLACK_S = 60.0, 120.0
# fio's start and what it does beside the measurement: flushing, making and removing files
_JOB_S = 1.0


@dataclass(frozen=True, slots=True)
class _Ready:
    """A host on which it can be measured."""

    host: Host
    told: Event

    @property
    def machine(self) -> str:
        """Hosts of one machine share its disks."""
        return str(self.told["machine"]) or self.host.name


@dataclass(frozen=True, slots=True)
class _Job:
    """What of fio's report counts for one of the jobs."""

    unit: str
    reads: bool
    per_second: bool

    def value(self, job: FioJob) -> float | None:
        """The measured rate, in the unit of the pattern; None where fio did not report it."""
        if self.per_second:
            return job.read_iops if self.reads else job.write_iops
        return job.read_mib_s if self.reads else job.write_mib_s

    def latency_ms(self, job: FioJob) -> float | None:
        """The 99th percentile of one operation."""
        return job.read_latency_p99_ms if self.reads else job.write_latency_p99_ms


# a small file is written by one operation: its rate is that of the files
_JOBS = {
    "sequential write": _Job("MiB/s", reads=False, per_second=False),
    "sequential read": _Job("MiB/s", reads=True, per_second=False),
    "random read": _Job("IOPS", reads=True, per_second=True),
    "small files write": _Job("files/s", reads=False, per_second=True),
}


@dataclass(frozen=True, slots=True)
class StorageOptions(ProbeOptions):
    """`path` is a folder on the hosts."""

    path: str | None = option(None, Text(), "The folder to measure in.", shown="where nodectl keeps checkpoints")


def run_storage(transport: Transport, hosts: Sequence[Host], options: StorageOptions, note: Note) -> ProbeResult:
    """Rates of each host's storage; hosts of one machine in turn, so that none disturbs another."""
    ready, findings = _look(transport, hosts, options)
    result = ProbeResult(findings=tuple(findings))
    if not ready:
        return result
    in_turn = turns(ready, lambda each: each.machine, options.forks)
    options, amount = fit(PROBE, options, cost_s=lambda each: in_turn * _cost_s(each))
    cost = said(in_turn * _cost_s(amount))
    note(f"storage: {len(ready)} hosts, {in_turn} in turn, about {cost}{given_up(options)}")
    result += _measured(transport, ready, options)
    suspects = slow_hosts(result.measurements, hosts)
    again = [ready_host for ready_host in ready if ready_host.host.name in suspects]
    if again and has_time(options, turns(again, lambda each: each.machine, options.forks) * _cost_s(amount)):
        note(f"storage: once more on {', '.join(sorted(suspects))}")
        result = better(result, _measured(transport, again, options), "pattern")
    return marked(result + ProbeResult(findings=tuple(slow_findings(result.measurements, hosts))), options)


def _cost_s(amount: Amount) -> float:
    """Seconds that all patterns take on one host."""
    return 1.0 + amount.repetitions * len(_JOBS) * (amount.duration_s + _JOB_S)


def _look(transport: Transport, hosts: Sequence[Host], options: StorageOptions) -> tuple[list[_Ready], list[Finding]]:
    def ask(host: Host) -> _Ready | Finding:
        events = Events()
        args = ["look", *_path(options)]
        done = run_payload(transport, host, "probe_storage", args, timeout_s=_LOOK_S, on_output=events.add)
        answers = events.of("ready")
        if not done.ok or not answers:
            return host_finding(NAME, host.name, Status.UNKNOWN, *failure(done, events))
        if not answers[0]["fio"]:
            remedy = "install the package fio there"
            return host_finding(NAME, host.name, Status.UNKNOWN, "fio is not installed", remedy)
        return _Ready(host, answers[0])

    answers = dict(fan_out(hosts, ask, options.forks))
    found = [answers[host] for host in hosts]
    return [each for each in found if isinstance(each, _Ready)], [each for each in found if isinstance(each, Finding)]


def _path(options: StorageOptions) -> list[str]:
    return ["--path", options.path] if options.path else []


def _measured(transport: Transport, ready: Sequence[_Ready], options: StorageOptions) -> ProbeResult:
    machines = len({ready_host.machine for ready_host in ready})
    together = min(machines, options.forks)
    return by_machine(
        transport,
        ready,
        lambda each: each.machine,
        lambda each: _one(transport, each, options, together),
        options.forks,
    )


def _one(transport: Transport, ready: _Ready, options: StorageOptions, together: int) -> ProbeResult:
    events, told = Events(), ready.told
    runs, seconds = options.repetitions or _USUAL.repetitions, options.duration_s or _USUAL.duration_s
    size = min(SIZE_BYTES, int(told["room_bytes"]))
    wishes = {"seconds": seconds, "runs": runs, "bytes": size, "direct": int(told["direct"]), "engine": told["engine"]}
    args = ["measure", *_path(options), *(f"--{name}={value}" for name, value in wishes.items())]
    deadline_s = _cost_s(Amount(runs, seconds)) + _SLACK_S
    done = run_payload(transport, ready.host, "probe_storage", args, timeout_s=deadline_s, on_output=events.add)
    try:
        jobs = _read(events)
    except ParseError as error:
        return ProbeResult(findings=(host_finding(NAME, ready.host.name, Status.UNKNOWN, error.message),))
    conditions = _conditions(ready, events, options, together)
    measurements = tuple(
        each
        for name, runs_of in jobs.items()
        if (each := _measurement(ready.host, name, runs_of, conditions)) is not None
    )
    if done.ok and len(measurements) == len(_JOBS):
        return ProbeResult(measurements)
    status = Status.FAILED if done.outcome is Outcome.RAN and events.of("error") else Status.UNKNOWN
    return ProbeResult(measurements, (host_finding(NAME, ready.host.name, status, *failure(done, events)),))


def _read(events: Events) -> dict[str, list[FioJob]]:
    """fio's jobs by their name; ParseError where a report cannot be read or a job ended with an error."""
    found: dict[str, list[FioJob]] = defaultdict(list)
    for event in events.of("fio"):
        for job in parse_fio(str(event["text"])).jobs:
            if job.error:
                raise ParseError(f"fio ended '{event['job']}' with error {job.error}")
            found[str(event["job"])].append(job)
    return found


def _conditions(ready: _Ready, events: Events, options: StorageOptions, together: int) -> dict[str, object]:
    told = ready.told
    sizes = [int(event["bytes"]) for event in events.of("size")]
    conditions: dict[str, object] = {
        "path": told["path"],
        "file_system": told["file_system"],
        "source": told["source"],
        # without it the page cache takes part
        "direct": told["direct"],
        "engine": told["engine"],
        "fio": told["fio"],
        "file_mib": sizes[0] // MIB if sizes else None,
        "duration_s": options.duration_s,
        "hosts_at_once": together,
    }
    return conditions


def _measurement(host: Host, name: str, runs: Sequence[FioJob], conditions: Mapping[str, object]) -> Measurement | None:
    kind = _JOBS[name]
    values = [value for run in runs if (value := kind.value(run)) is not None]
    latencies = [value for run in runs if (value := kind.latency_ms(run)) is not None]
    if not values:
        return None
    own = {
        "pattern": name,
        **conditions,
        # each is written through the page cache, and flushed
        **({"direct": False} if name == "small files write" else {}),
        "p99_ms": median(latencies) if latencies else None,
        "repetitions": len(values),
        RUNS_KEY: [round(value, 3) for value in values],
    }
    value = median(values)
    return Measurement(NAME, (host.name,), value, kind.unit, host.name, None, spread(values, value), own)


# the condition that holds the runs
RUNS_KEY = "values"
# what disks of one kind differ by, new and worn, empty and nearly full, is no fault
_SLOW_SHARE = 0.5
_REMEDY = "look at its disk (`nodectl health`: kernel log, mounts), at who else uses it, and at the way to it"
_Series = tuple[str, str]


def slow_by_pattern(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> dict[_Series, dict[str, Slow]]:
    """By pattern, among hosts of one hardware profile and one kind of file system."""
    kinds = hardware_names(hosts)
    series: dict[_Series, dict[str, Measurement]] = defaultdict(dict)
    for measurement in measurements:
        name = measurement.hosts[0]
        kind = f"{kinds.get(name, '')} {measurement.conditions['file_system']} {measurement.conditions['direct']}"
        series[str(measurement.conditions["pattern"]), kind][name] = measurement
    judged = {
        key: slow(
            {name: one.value for name, one in own.items()}, {name: best_run(one, RUNS_KEY) for name, one in own.items()}
        )
        for key, own in series.items()
    }
    far = {
        key: {
            name: each
            for name, each in found.items()
            if best_run(series[key][name], RUNS_KEY) < _SLOW_SHARE * each.usual
        }
        for key, found in judged.items()
    }
    return {key: found for key, found in far.items() if found}


def slow_hosts(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> set[str]:
    """Names of those that are slow in any pattern."""
    return {name for found in slow_by_pattern(measurements, hosts).values() for name in found}


def slow_findings(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> Iterator[Finding]:
    """One a host: its worst pattern."""
    units = {str(measurement.conditions["pattern"]): measurement.unit for measurement in measurements}
    found: dict[str, list[tuple[str, Slow]]] = defaultdict(list)
    for (pattern, _), each in slow_by_pattern(measurements, hosts).items():
        for name, one in each.items():
            found[name].append((pattern, one))
    for host in hosts:
        if host.name in found:
            pattern, worst = min(found[host.name], key=lambda pair: pair[1].value / pair[1].usual)
            unit = units[pattern]
            others = "the other host has" if not worst.culprit else "the median of the others is"
            yield Finding(
                host.name,
                NAME,
                Status.FAILED if worst.culprit else Status.WARNING,
                subject=pattern,
                expected=f"{worst.usual:.0f} {unit}",
                actual=f"{worst.value:.0f} {unit}; {others} {worst.usual:.0f}",
                remedy=_REMEDY,
                kind="host",
                hosts=(host.name,),
            )


def _shown(given: Conditions) -> str:
    return f"{given.get('pattern')}, {given.get('file_system')}, {'direct' if given.get('direct') else 'page cache'}"


PROBE = Probe(
    name=NAME,
    summary="fio on each host, in the folder that a job would use.",
    help="Sequential writes and reads, random reads, and small files.",
    run=run_storage,
    options=StorageOptions,
    results=MeasurementKind(
        units=tuple(Unit(unit) for unit in dict.fromkeys(job.unit for job in _JOBS.values())),
        identity=("pattern", "path", "direct", "engine", "hosts_at_once"),
        shown=_shown,
    ),
    usual=_USUAL,
    least=Amount(repetitions=1, duration_s=0.5),
    cost_s=_cost_s,
    in_a_trial=StorageOptions(duration_s=1.0, repetitions=1),
)

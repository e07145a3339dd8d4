"""The storage probe: fio on each host, on the path that a job would use, and the fleet held against itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.units import MIB
from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.load import FioJob, parse_fio
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.each import Node, compared, planned
from nodectl.probes.endpoints import Look
from nodectl.probes.events import Event, Events, failure, run_program
from nodectl.probes.options import Text, option
from nodectl.probes.outliers import Comparison, SlowOne, of_itself, slow_finding, worst_by_host
from nodectl.probes.schedule import turns
from nodectl.transport.base import Transport

NAME = "storage"
# of one job, and of the large file at most
_USUAL = Amount(repetitions=3, duration_s=2.0)
SIZE_BYTES = 1024 * MIB
_LOOK_S, _SLACK_S = 60.0, 120.0
# fio's start and what it does beside the measurement: flushing, making and removing files
_JOB_S = 1.0


@dataclass(frozen=True, slots=True)
class _Job:
    """Hold what of fio's report counts for one of the jobs."""

    unit: str
    reads: bool
    per_second: bool

    def value(self, job: FioJob) -> float | None:
        """Return the measured rate, in the unit of the pattern; None where fio did not report it."""
        if self.per_second:
            return job.read_iops if self.reads else job.write_iops
        return job.read_mib_s if self.reads else job.write_mib_s

    def latency_ms(self, job: FioJob) -> float | None:
        """Return the 99th percentile of one operation."""
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
    """Measure rates of each host's storage; hosts of one machine in turn, so that none disturbs another."""
    plan = planned(
        transport,
        hosts,
        PROBE,
        options,
        note,
        look=Look("probes.storage", lambda _: ["look", *_path(options.path)], "ready", _LOOK_S),
        read=_ready,
        cost_s=lambda amount, _: _cost_s(amount),
        described=lambda nodes: f"{counted(len(nodes), 'host')}, {turns(nodes, options.forks)} in turn",
    )
    if isinstance(plan, ProbeResult):
        return plan

    def measure(node: Node, nodes: Sequence[Node]) -> ProbeResult:
        at_once = min(len({other.machine for other in nodes}), options.forks)
        return _measure(transport, node, options.path, plan.amount, at_once)

    def blame(_: ProbeResult, slow_ones: Sequence[SlowOne]) -> Iterable[Finding]:
        for pair in worst_by_host(of_itself(slow_ones), hosts):
            yield slow_finding(pair, str(pair[0].conditions["pattern"]), _REMEDY, digits=".0f")

    return compared(transport, hosts, plan, measure, _COMPARISON, blame)


def _cost_s(amount: Amount) -> float:
    """Return the seconds that all patterns take on one host."""
    return 1.0 + amount.repetitions * len(_JOBS) * (amount.duration_s + _JOB_S)


def _ready(host: Host, answer: Event) -> Node | Finding:
    if answer["fio"]:
        return Node(host, answer)
    return host_finding(NAME, host.name, Status.UNKNOWN, "fio is not installed", "install the package fio there")


def _path(path: str | None) -> list[str]:
    return ["--path", path] if path else []


def _measure(transport: Transport, ready: Node, path: str | None, amount: Amount, at_once: int) -> ProbeResult:
    storage = ready.answer
    wishes = {
        "seconds": amount.duration_s,
        "runs": amount.repetitions,
        "bytes": min(SIZE_BYTES, int(storage["room_bytes"])),
        "direct": int(storage["direct"]),
        "engine": storage["engine"],
    }
    args = ["measure", *_path(path), *(f"--{name}={value}" for name, value in wishes.items())]
    deadline_s = _cost_s(amount) + _SLACK_S
    done, events = run_program(transport, ready.host, "probes.storage", args, timeout_s=deadline_s)
    try:
        jobs = _read(events)
    except ParseError as error:
        return ProbeResult(findings=(host_finding(NAME, ready.host.name, Status.UNKNOWN, error.message),))
    conditions = _conditions(ready, events, amount, at_once)
    measurements = tuple(
        measurement
        for pattern, runs_of in jobs.items()
        if (measurement := _measurement(ready.host, pattern, runs_of, conditions)) is not None
    )
    if done.ok and len(measurements) == len(_JOBS):
        return ProbeResult(measurements)
    status = Status.FAILED if done.outcome is Outcome.RAN and events.of("error") else Status.UNKNOWN
    return ProbeResult(measurements, (host_finding(NAME, ready.host.name, status, *failure(done, events)),))


def _read(events: Events) -> dict[str, list[FioJob]]:
    """Return fio's jobs by their pattern; ParseError where a report cannot be read or a job ended with an error."""
    jobs: dict[str, list[FioJob]] = defaultdict(list)
    for event in events.of("fio"):
        for job in parse_fio(str(event["text"])).jobs:
            if job.error:
                raise ParseError(f"fio ended '{event['job']}' with error {job.error}")
            jobs[str(event["job"])].append(job)
    return jobs


def _conditions(ready: Node, events: Events, amount: Amount, at_once: int) -> dict[str, object]:
    sizes = [int(event["bytes"]) for event in events.of("size")]
    return {
        # where it is not direct the page cache takes part
        **{name: ready.answer[name] for name in ("path", "file_system", "source", "direct", "engine", "fio")},
        "file_mib": sizes[0] // MIB if sizes else None,
        "duration_s": amount.duration_s,
        "hosts_at_once": at_once,
    }


def _measurement(
    host: Host, pattern: str, runs: Sequence[FioJob], conditions: Mapping[str, object]
) -> Measurement | None:
    kind = _JOBS[pattern]
    values = [value for run in runs if (value := kind.value(run)) is not None]
    latencies = [value for run in runs if (value := kind.latency_ms(run)) is not None]
    if not values:
        return None
    given = {
        "pattern": pattern,
        **conditions,
        # each is written through the page cache, and flushed
        **({"direct": False} if pattern == "small files write" else {}),
        "p99_ms": median(latencies) if latencies else None,
        "repetitions": len(values),
        "values": [round(value, 3) for value in values],
    }
    value = median(values)
    return Measurement(NAME, (host.name,), value, kind.unit, host.name, None, spread(values, value), given)


_REMEDY = "look at its disk (`nodectl health`: kernel log, mounts), at who else uses it, and at the way to it"
_COMPARISON = Comparison(
    lambda measurement: tuple(measurement.conditions[name] for name in ("pattern", "file_system", "direct")),
    series="pattern",
    # what disks of one kind differ by, new and worn, empty and nearly full, is no fault
    share=0.5,
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
        places=("path",),
        shown=_shown,
    ),
    usual=_USUAL,
    least=Amount(repetitions=1, duration_s=0.5),
    cost_s=_cost_s,
    in_a_trial=StorageOptions(duration_s=1.0, repetitions=1),
    feels=("sysctl.vm", "sysctl.fs"),
)

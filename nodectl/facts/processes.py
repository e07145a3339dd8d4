"""Processes: load, what hangs in the kernel, and what belongs to a job."""

import math
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import counts, script, text_fact


@dataclass(frozen=True, slots=True)
class Process:
    """A process that waits for a device or a file system that does not answer; `age_s` is since it was started."""

    pid: int
    name: str
    waits_in: str | None = None
    age_s: int | None = None


@dataclass(frozen=True, slots=True)
class Processes:
    """The host's load, and processes that hang in the kernel."""

    load_1: float
    load_5: float
    uninterruptible: tuple[Process, ...]
    count: int


def _parse_processes(text: str) -> Processes:
    load: list[str] = []
    hanging: list[Process] = []
    count = 0
    for number, line in enumerate(text.splitlines(), start=1):
        kind, _, rest = line.partition(" ")
        *parts, name = rest.split(None, 3) or [""]
        # older recordings have no age
        age, _, after = name.partition(" ")
        age_s, name = (int(age), after.strip()) if age.isdigit() and after.strip() else (None, name)
        if kind == "load":
            load = [*parts, name]
        elif kind == "count" and rest.isdigit():
            count = int(rest)
        elif kind == "process" and len(parts) == 3 and parts[1].isdigit():
            if parts[0].startswith("D"):
                hanging.append(Process(int(parts[1]), name, None if parts[2] == "-" else parts[2], age_s))
        else:
            raise ParseError(f"processes: line {number}: {line[:200]!r}")
    try:
        one, five = (float(word) for word in load[:2])
        if not math.isfinite(one + five):
            raise ValueError(load)
    except ValueError as error:
        raise ParseError(f"processes: {load!r} is no load") from error
    return Processes(one, five, tuple(hanging), count)


PROCESSES_FACT = text_fact(
    "processes",
    script("processes"),
    _parse_processes,
    lambda processes: f"load {processes.load_1:.1f}, {len(processes.uninterruptible)} stuck",
    row=870,
)


@dataclass(frozen=True, slots=True)
class JobProcesses:
    """Processes that belong to a job: of Slurm by their control group, of nodectl by that or by the job's mark."""

    slurm: frozenset[int]
    nodectl: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        """Return the processes of any job."""
        return self.slurm | self.nodectl


def _parse_job_processes(text: str) -> JobProcesses:
    owners: dict[str, set[int]] = {"slurm": set(), "nodectl": set()}
    for number, line in enumerate(text.splitlines(), start=1):
        owner, _, pid = line.partition(" ")
        if owner not in owners or not pid.isdigit() or len(pid) > 10:
            raise ParseError(f"job-processes: line {number}: {line[:200]!r}")
        owners[owner].add(int(pid))
    return JobProcesses(frozenset(owners["slurm"]), frozenset(owners["nodectl"]))


JOB_PROCESSES_FACT = text_fact(
    "job_processes",
    script("job-processes"),
    _parse_job_processes,
    lambda processes: counts(slurm=len(processes.slurm), nodectl=len(processes.nodectl)),
    row=875,
    occasion="live",
)

"""Which processes belong to a job: of Slurm by their control group, of nodectl by that or by the job's mark."""

from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import counts, script, text_fact

# another login's environment is not readable: its jobs are then known by their control group alone
_SHOW = """\
# most hosts have none: one look tells that
grep -sqaE '^[0-9]+:[^:]*:.*/(slurmstepd\\.scope|slurm|nodectl)/|(^|[^A-Z_])NODECTL_JOB_ID=' \\
  /proc/[0-9]*/cgroup /proc/[0-9]*/environ || exit 0
of_jobs=
if grep -sqE '/(slurmstepd\\.scope|slurm|nodectl)/' /proc/[0-9]*/cgroup; then
  grep -slE '/(slurmstepd\\.scope|slurm)/' /proc/[0-9]*/cgroup | sed 's|/proc/|slurm |; s|/cgroup||'
  of_jobs=$(grep -slE '/nodectl/' /proc/[0-9]*/cgroup)
fi
marked=$(grep -slaE '(^|[^A-Z_])NODECTL_JOB_ID=' /proc/[0-9]*/environ)
[ -z "$of_jobs$marked" ] ||
  printf '%s\\n' $of_jobs $marked | sed 's|/proc/|nodectl |; s|/[a-z]*$||' | sort -u
exit 0
"""


@dataclass(frozen=True, slots=True)
class JobProcesses:
    """The ids of processes by whose job they are."""

    slurm: frozenset[int]
    nodectl: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        """Of any job."""
        return self.slurm | self.nodectl


def _parse(text: str) -> JobProcesses:
    owners: dict[str, set[int]] = {"slurm": set(), "nodectl": set()}
    for number, line in enumerate(text.splitlines(), start=1):
        owner, _, pid = line.partition(" ")
        if owner not in owners or not pid.isdigit() or len(pid) > 10:
            raise ParseError(f"job-processes: line {number}: {line[:200]!r}")
        owners[owner].add(int(pid))
    return JobProcesses(frozenset(owners["slurm"]), frozenset(owners["nodectl"]))


def _words(processes: JobProcesses) -> str:
    return counts(slurm=len(processes.slurm), nodectl=len(processes.nodectl))


FACT = text_fact("job_processes", script("job-processes", _SHOW), _parse, _words, row=875, occasion="live")

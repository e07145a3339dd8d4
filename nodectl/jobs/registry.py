"""Which jobs there are: the truth lies on the nodes, and is read from all of them at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.errors import UnreachableError, UsageError
from nodectl.jobs.diagnose import Report, merge
from nodectl.jobs.node import ask
from nodectl.model.host import Host
from nodectl.model.job import Job
from nodectl.transport.base import Transport

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Listing:
    """The jobs, newest last, and the hosts that could not be asked."""

    jobs: tuple[Job, ...]
    unreachable: Mapping[str, str]
    asked: int

    def find(self, wanted: str) -> Job:
        """By id, by the beginning of an id that fits one job alone, or `last`; UsageError where there is none."""
        exact = [job for job in self.jobs if job.id == wanted]
        found = exact or [job for job in self.jobs if job.id.startswith(wanted)]
        if wanted == "last":
            found = list(self.jobs[-1:])
        if len(found) == 1:
            return found[0]
        if found:
            raise UsageError(
                f"{wanted!r} fits {len(found)} jobs: {', '.join(job.id for job in found)}", "say more of it"
            )
        if self.unreachable and len(self.unreachable) == self.asked:
            raise UnreachableError("no host could be asked for its jobs: " + next(iter(self.unreachable.values())))
        unseen = f" on the hosts that answered ({len(self.unreachable)} did not)" if self.unreachable else ""
        raise UsageError(f"there is no job {wanted!r}{unseen}", "`nodectl jobs list` shows those that there are")


def read_jobs(
    transport: Transport,
    hosts: Sequence[Host],
    forks: int,
    job_ids: Sequence[str] = (),
    gone: Mapping[str, str] | None = None,
) -> Listing:
    """Ask every host for its jobs (for these alone, where some are named), without those known to be `gone`."""
    known = dict(gone or {})
    there = [host for host in hosts if host.name not in known]
    answers = ask(transport, there, lambda _: ["list", *job_ids], forks=forks, timeout_s=_TIMEOUT_S)
    problems = {**known, **answers.problems}
    reports: dict[str, list[Report]] = defaultdict(list)
    for host, lines in answers.lines.items():
        for document in lines:
            reports[document["plan"]["id"]].append(Report(host, document))
    jobs = tuple(merge(reports[job_id], problems) for job_id in sorted(reports))
    return Listing(jobs, problems, len(hosts))

"""How a job comes onto its hosts: the folder to all, then the supervisors; all of them or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodectl.common.nodeset import fold
from nodectl.errors import JobError, NodectlError, UnreachableError
from nodectl.jobs.node import Answers, ask
from nodectl.jobs.plan import CheckpointPlan, Plan
from nodectl.model.host import Host
from nodectl.transport.base import Transport

_RECEIVE_S = 120.0
_START_S = 30.0


def start(transport: Transport, hosts: Sequence[Host], plan: Plan, package: bytes, forks: int) -> None:
    """Copy the job to every host and start it; undone everywhere where one host refuses."""
    ranks = {host.name: str(rank) for rank, host in enumerate(hosts)}
    try:
        sent = ask(
            transport,
            hosts,
            lambda host: ["receive", plan.id, ranks[host.name]],
            forks=forks,
            timeout_s=_RECEIVE_S,
            stdin=package,
        )
        _all_or_none(sent, "could not take the job's folder")
        started = ask(transport, hosts, lambda _: ["start", plan.id], forks=forks, timeout_s=_START_S)
        _all_or_none(started, "could not start the job's supervisor")
    except NodectlError:
        discard(transport, hosts, plan.id, forks)
        raise


def discard(transport: Transport, hosts: Sequence[Host], job_id: str, forks: int) -> None:
    """Undo what a failed start has left."""
    ask(transport, hosts, lambda _: ["discard", job_id], forks=forks, timeout_s=_START_S)


def survey_checkpoints(
    transport: Transport, hosts: Sequence[Host], job_id: str, folder: str, forks: int
) -> CheckpointPlan:
    """Whether all hosts see one folder, and who holds the newest checkpoint."""
    first, others = hosts[:1], hosts[1:]
    try:
        marked = ask(transport, first, lambda _: ["survey", folder, job_id, "mark"], forks=forks, timeout_s=_START_S)
        _all_or_none(marked, f"could not write to the checkpoint folder {folder}")
        looked = ask(transport, others, lambda _: ["survey", folder, job_id, "look"], forks=forks, timeout_s=_START_S)
        _all_or_none(looked, f"could not make the checkpoint folder {folder}")
    except NodectlError:
        clear_survey(transport, hosts, job_id, folder, forks)
        raise
    answers = {**marked.lines, **looked.lines}
    plan = judge_survey(folder, [(host.name, answers[host.name][0]) for host in hosts])
    if isinstance(plan, CheckpointPlan):
        return plan
    clear_survey(transport, hosts, job_id, folder, forks)
    raise plan


def clear_survey(transport: Transport, hosts: Sequence[Host], job_id: str, folder: str, forks: int) -> None:
    """Take away the token by which the hosts found out whether they share the folder."""
    ask(transport, hosts[:1], lambda _: ["survey", folder, job_id, "clear"], forks=forks, timeout_s=_START_S)


def judge_survey(folder: str, answers: Sequence[tuple[str, Mapping[str, Any]]]) -> CheckpointPlan | JobError:
    """The first host wrote a token: all others see it, or none does; some is a mistake in the mounts."""
    sees = [bool(answer["sees_token"]) for _, answer in answers]
    if all(sees):
        return CheckpointPlan(folder, "shared" if len(answers) > 1 else "single")
    if any(sees[1:]):
        blind = fold(name for (name, _), seen in zip(answers, sees, strict=True) if not seen)
        return JobError(
            f"the checkpoint folder {folder} is shared, but not on {blind}",
            "mount it on all hosts, or name a folder that is local to each",
        )
    newest = [answer["newest"]["mtime_ns"] if answer["newest"] else -1 for _, answer in answers]
    source = newest.index(max(newest))
    return CheckpointPlan(folder, "local", source if newest[source] > newest[0] else None)


def _all_or_none(answers: Answers, what: str) -> None:
    if not answers.problems:
        return
    hosts = fold(answers.problems)
    reasons = "; ".join(dict.fromkeys(answers.problems.values()))
    error: type[NodectlError] = JobError if answers.refused else UnreachableError
    raise error(f"{hosts} {what}: {reasons}", "nothing was left running; mend that, or leave the host out with --limit")

"""Reads what the black boxes of an ended job's hosts hold, and judges it as a look at the running job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodectl.checks.check import Subject
from nodectl.checks.kernel.last_boot import unclean_boot
from nodectl.errors import ParseError
from nodectl.facts.catalogue import facts_named, read_facts
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from nodectl.jobs.hang import clock, judge
from nodectl.jobs.nodes import ask
from nodectl.jobs.rows import TakingRow
from nodectl.model.host import Host
from nodectl.model.job import Job, JobState, Taking
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.payload.common.secret_words import without_secrets
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport

_TIMEOUT_S = 30.0
_BLAMES_NOBODY = frozenset(("collective_timeout", "rendezvous", "time_limit"))
_CUTS_OFF = frozenset(("host_lost", "supervisor", "launcher"))
_MOST_LINES = 4
# on the host of a rank that is missed, this belongs to the cause
_FULL = "is full"
# hosts take at the word of one of them; what is further apart is of another moment
_TOGETHER_S = 45.0
_NO_BRAKES = frozenset(("idle", "gpu_idle", "applications_clocks_setting"))
# who was missed tells more than what these classes say
_UNEXPLAINED = frozenset(
    ("collective_timeout", "communication", "rendezvous", "time_limit", "host_lost", "link", "supervisor", "launcher")
)


def recall(transport: Transport, hosts: Sequence[Host], job_id: str, forks: int) -> tuple[Taking, ...]:
    """Return what the hosts' black boxes hold of the newest attempt, oldest first: a suspicion, and the end."""
    answers = ask(transport, hosts, lambda _: ["black_box", job_id], forks=forks, timeout_s=_TIMEOUT_S, kind=TakingRow)
    rows = [(host, row) for host, rows in answers.lines.items() for row in rows]
    newest = max((row["attempt"] for _, row in rows), default=0)
    of_kinds = (_newest_together([item for item in rows if item[1]["attempt"] == newest and item[1]["kind"] == kind])
                for kind in ("suspicion", "end"))  # fmt: skip
    return tuple(_taking(reports, answers.problems, hosts) for reports in of_kinds if reports)


def _newest_together(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Mapping[str, Any]]:
    last = max((row["at"] for _, row in rows), default=0.0)
    return {host: row for host, row in sorted(rows, key=lambda item: item[1]["at"]) if last - row["at"] <= _TOGETHER_S}


def _taking(
    reports: Mapping[str, Mapping[str, Any]], problems: Mapping[str, str], hosts: Sequence[Host] = ()
) -> Taking:
    names = [host.name for host in hosts if host.name not in reports and host.name not in problems]
    lacking = dict.fromkeys(names, "its black box holds nothing of that moment: its ranks are not known")
    look = judge(reports, {**problems, **lacking}, empty=bool(lacking))
    evidence = [f"{host}{line}" for host, report in reports.items() for line in _machine_lines(report)]
    first = min(reports.values(), key=lambda row: row["at"])
    reasons = [row["why"] for row in reports.values() if row["why"] and not row["why"].startswith("another host")]
    why = without_secrets(next(iter(reasons), first["why"]))
    return Taking(first["at"], first["kind"], why, replace(look, evidence=(*look.evidence, *evidence)))


def _machine_lines(report: Mapping[str, Any]) -> list[str]:
    machine, times = report["host"], report.get("times", {})
    lines = {
        "full": [f"{place} {_FULL}" for place in machine.get("full", ())],
        "blocked": [f"a process waits in the kernel: {line}" for line in machine.get("blocked", ())[:_MOST_LINES]],
        "smi": _gpu_lines(machine.get("smi", "")),
    }
    return [f", {clock(times.get(key, report['at']))}: {line}" for key, texts in lines.items() for line in texts]


def _gpu_lines(text: str) -> list[str]:
    if not text:
        return []
    try:
        report = parse_nvidia_smi_q(text)
    except ParseError as error:
        return [f"nvidia-smi -q cannot be read: {error.message}"]
    slowed = [(place, set(gpu.clock_event_reasons or ()) - _NO_BRAKES) for place, gpu in enumerate(report.gpus)]
    return [f"GPU {place} was slowed down: {', '.join(sorted(reasons))}" for place, reasons in slowed if reasons]


def explained(job: Job, takings: Sequence[Taking]) -> Job:
    """Return the job; a failure that tells only that somebody was missed names who, by the newest taking that knows.

    As an attempt fails its ranks leave their collectives one after another: only at a time limit does that moment tell.
    """
    cause = job.first_failure
    kinds = ("suspicion", "end") if cause is not None and cause.category == "time_limit" else ("suspicion",)
    naming = [taking for taking in takings if taking.look.missing and taking.kind in kinds]
    # a suspicion has two looks at the ranks, an end often one
    named = next((taking for taking in naming if taking.look.missing == naming[-1].look.missing), None)
    if cause is None or named is None or cause.category not in _UNEXPLAINED:
        return job
    when = ", ".join(filter(None, (clock(named.at), named.why)))
    line = f"black box, {when}: {named.look.verdict}"
    hosts = tuple(f"{rank.host}," for rank in named.look.ranks if rank.rank in named.look.missing)
    full = [text for text in named.look.evidence if text.startswith(hosts) and text.endswith(_FULL)]
    cause = replace(cause, evidence=(*cause.evidence, line, *full))
    if cause.category in _BLAMES_NOBODY:
        ranks = [rank for rank in named.look.ranks if rank.rank in named.look.missing]
        if cause.rank is None and len(ranks) == 1:
            message = f"{cause.message}; {named.look.verdict}"
            cause = replace(cause, host=ranks[0].host, rank=ranks[0].rank, message=message)
        return replace(job, first_failure=cause)
    if cause.category in _CUTS_OFF:
        cause = replace(cause, message=f"{cause.message}; the job had stood still: {named.look.verdict}")
    return replace(job, first_failure=cause)


def of_its_end(transport: Transport, hosts: Sequence[Host], job: Job) -> Job:
    """Return the job; one that a node's end broke off with how that boot ended, as `nodectl health` judges it."""
    cause = job.first_failure
    host = next((host for host in hosts if cause is not None and cause.host == host.name), None)
    if cause is None or host is None or cause.kind != "rebooted":
        return job
    facts = facts_named("last_boot", "bmc_log")
    answer = collect(transport, host, [command for fact in facts for command in fact.commands_on(host)])
    if not isinstance(answer, Recording):
        return job
    subject = Subject(host.name, read_facts(answer, facts), None, time=answer.time or 0.0)
    told = [finding for finding in unclean_boot(subject) if finding.status is not Status.UNKNOWN]
    lines = tuple(f"the last boot there {finding.actual}" for finding in told)
    remedy = next((finding.remedy for finding in told if finding.remedy), cause.remedy)
    return replace(job, first_failure=replace(cause, evidence=(*cause.evidence, *lines), remedy=remedy))


def telling(job: Job, takings: Sequence[Taking]) -> tuple[Taking, ...]:
    """Return the takings that people read: of a job that stood still, or one whose cause says only that it broke."""
    cause = job.first_failure
    if job.state is JobState.FINISHED:
        return ()
    suspicions = tuple(taking for taking in takings if taking.kind == "suspicion")
    return suspicions or (tuple(takings) if cause is not None and cause.category in _UNEXPLAINED else ())

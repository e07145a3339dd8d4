"""What nodectl asks of the nodes about jobs: start, stop, clean, survey; one run of `jobs.control` a host."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl.common import bounded_json
from nodectl.common.documents import values_of
from nodectl.common.nodeset import fold
from nodectl.common.printable import one_line
from nodectl.common.process import operator
from nodectl.errors import JobError, NodectlError, ParseError, UnreachableError
from nodectl.jobs.plan import CheckpointPlan, Plan
from nodectl.jobs.rows import CleanRow, SurveyRow
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

MODULE = "jobs.control"
UNREADABLE = "sent an unreadable answer"
_SHOWN_CHARS = 200
_UPLOAD_S = 150.0
_START_S = 30.0
_STOP_S = 20.0
_CLEAN_S = 30.0
_DISCARD_S = 45.0  # a large project is many files


@dataclass(frozen=True, slots=True)
class Answers:
    """Rows by host; `refused` said no, `unreachable` could not be asked; `unreadable` rows are not in `lines`."""

    lines: Mapping[str, tuple[Mapping[str, Any], ...]]
    refused: Mapping[str, str] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> dict[str, str]:
        """Every host without a whole answer, with the reason."""
        return {**self.unreadable, **self.refused, **self.unreachable}


def ask(
    transport: Transport,
    hosts: Sequence[Host],
    args: Callable[[Host], Sequence[str]],
    *,
    forks: int,
    timeout_s: float,
    stdin: bytes | None = None,
    kind: Any = dict[str, Any],
) -> Answers:
    """`jobs.control` with `args(host)` on every host at once; `kind`: the type of a row (rows.py)."""

    def work(host: Host) -> CommandResult:
        return run_payload(transport, host, MODULE, list(args(host)), timeout_s=timeout_s, stdin=stdin, bare=True)

    lines: dict[str, tuple[Mapping[str, Any], ...]] = {}
    refused, unreachable = {}, {}
    unreadable: dict[str, str] = {}
    for host, result in fan_out(hosts, work, forks):
        if result.outcome is not Outcome.RAN:
            unreachable[host.name] = why(result)
        elif result.exit_status != 0:
            refused[host.name] = why(result)
        else:
            try:
                lines[host.name], wrong = rows_of(host.name, result.stdout, kind)
            except ParseError as error:
                refused[host.name] = result.error or error.message
            else:
                unreadable |= {host.name: wrong} if wrong else {}
    return Answers(lines, refused, unreachable, unreadable)


def rows_of(host: str, output: str, kind: Any) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Return the rows of one whole frame, and what is wrong with the first bad one; ParseError if it is cut."""
    rows = bounded_json.document(host, output)
    if not isinstance(rows, list):
        raise ParseError(f"{UNREADABLE}: {str(rows)[:100]!r}")
    sane: list[Mapping[str, Any]] = []
    wrong = ""
    for row in rows:
        try:
            sane += values_of(kind, [row], extra="ignore")
        except ValueError as error:
            wrong = wrong or f"{UNREADABLE}: {one_line(str(error))[:_SHOWN_CHARS]}"
    return tuple(sane), wrong


def why(result: CommandResult) -> str:
    """One line for why a host gave no answer."""
    if result.error:
        return result.error
    lines = result.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {result.exit_status}"


def start(
    transport: Transport,
    hosts: Sequence[Host],
    plan: Plan,
    package: bytes,
    env: Mapping[str, str],
    forks: int,
) -> None:
    """Copy the package to each host and start the job; whatever ends that before its end, it is undone everywhere."""
    ranks = {host.name: str(rank) for rank, host in enumerate(hosts)}
    variables = json.dumps(dict(env)).encode() + b"\n"
    try:
        started = ask(
            transport,
            hosts,
            lambda host: ["start", plan.id, ranks[host.name]],
            forks=forks,
            timeout_s=_UPLOAD_S,
            stdin=variables + package,
        )
        _all_or_none(started, "could not take and start the job")
    except BaseException as error:
        if left := discard(transport, hosts, plan.id, forks).problems:
            error.add_note(f"{fold(left)}: the start could not be undone: {next(iter(left.values()))}")
        raise


def discard(transport: Transport, hosts: Sequence[Host], job_id: str, forks: int) -> Answers:
    """Undo what a start has left, also what of it is still on its way."""
    return ask(transport, hosts, lambda _: ["discard", job_id], forks=forks, timeout_s=_DISCARD_S)


def plan_checkpoints(
    transport: Transport, hosts: Sequence[Host], job_id: str, folder: str | None, forks: int
) -> CheckpointPlan | None:
    """Return the folder and whether all hosts see the same one; None without a folder."""
    if folder is None:
        return None
    first, others = hosts[:1], hosts[1:]
    survey: dict[str, Any] = {"forks": forks, "timeout_s": _START_S, "kind": SurveyRow}
    try:
        marked = ask(transport, first, lambda _: ["survey", folder, job_id, "mark"], **survey)
        _all_or_none(marked, f"could not write to the checkpoint folder {folder}")
        looked = ask(transport, others, lambda _: ["survey", folder, job_id, "look"], **survey)
        _all_or_none(looked, f"could not make the checkpoint folder {folder}")
        answers = {name: rows[0] for name, rows in (*marked.lines.items(), *looked.lines.items()) if rows}
        if mute := [host.name for host in hosts if host.name not in answers]:
            raise JobError(f"{fold(mute)} {UNREADABLE}, without the checkpoint folder {folder}", "leave it out (-l)")
        return judge_survey(folder, [(host.name, answers[host.name]) for host in hosts])
    finally:
        ask(transport, first, lambda _: ["survey", folder, job_id, "clear"], forks=forks, timeout_s=_START_S)


def judge_survey(folder: str, answers: Sequence[tuple[str, Mapping[str, Any]]]) -> CheckpointPlan:
    """Judge who sees the first host's token: all, or none; raise JobError for some, a mistake in the mounts."""
    sees = [bool(answer["sees_token"]) for _, answer in answers]
    if any(sees[1:]) and not all(sees):
        blind = fold(name for (name, _), seen in zip(answers, sees, strict=True) if not seen)
        raise JobError(
            f"the checkpoint folder {folder} is on a shared file system, but {blind} does not mount it",
            "mount it on all hosts, or name a folder that is local to each",
        )
    return CheckpointPlan(folder, all(sees))


def _all_or_none(answers: Answers, what: str) -> None:
    if not answers.problems:
        return
    hosts = fold(answers.problems)
    reasons = "; ".join(dict.fromkeys(answers.problems.values()))
    error: type[NodectlError] = JobError if answers.refused else UnreachableError
    raise error(f"{hosts} {what}: {reasons}", "nothing was left running; mend that, or leave the host out with --limit")


def stop(transport: Transport, hosts: Sequence[Host], job_id: str, forks: int) -> Answers:
    """End the job; returns when nothing of it is left on any host that could be reached (about 4 s, at most 10)."""
    return ask(transport, hosts, lambda _: ["stop", job_id, operator()], forks=forks, timeout_s=_STOP_S)


def clean(transport: Transport, hosts: Sequence[Host], job_ids: Sequence[str], forks: int) -> Answers:
    """Remove the folders of jobs that have ended; a running one keeps its own. One line a removed or kept folder."""
    return ask(transport, hosts, lambda _: ["clean", *job_ids], forks=forks, timeout_s=_CLEAN_S, kind=CleanRow)

"""Jobs and plans as text and as JSON documents: the cause first; a running job's ranks, its progress, its traces."""

from __future__ import annotations

import shlex
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import digits
from nodectl.model.job import (
    Failure,
    Job,
    JobState,
    Look,
    PastAttempt,
    Pulse,
    RankNow,
    RankTrace,
    Taking,
)
from nodectl.report.table import aligned, broken

_STATE = "~/.local/state/nodectl"
_MOST_CONSEQUENCES = 8
_WHY_CHARS = 160
_MOST_EVIDENCE = 12
_TRACEBACK_LINES = 40


def job_document(job: Job) -> dict[str, object]:
    """Return the job for `--output json`."""
    first = job.first_failure
    return {
        "id": job.id,
        "state": job.state.value,
        "hosts": list(job.hosts),
        "exit_status": job.exit_status,
        "first_failure": first and _failure_document(first, "evidence", "remedy", "traceback"),
        "consequences": [_failure_document(failure) for failure in job.consequences],
        "script": job.script,
        "args": list(job.args),
        "nproc_per_node": job.nproc_per_node,
        "started_at": job.created_at,
        "ended_at": job.ended_at,
        "operator": job.operator,
        "attempt": job.attempt,
        "nodes": list(job.nodes),
        "restarts": job.restarts,
        "past_attempts": [
            {
                "number": past.number,
                "hosts": list(past.hosts),
                "started_at": past.begun_at,
                "ended_at": past.ended_at,
                "cause": past.cause and _failure_document(past.cause),
            }
            for past in job.past
        ],
        "no_restart": job.no_restart,
        "stopped_by": job.stopped_by,
        "skipped": list(job.skipped),
        "traces": [asdict(trace) for trace in job.traces],
        "host_states": {part.host: part.state for part in job.parts},
        "processes": {part.host: part.processes for part in job.parts},
        "outputs": {part.host: list(part.outputs) for part in job.parts if part.outputs},
        "unreachable": {part.host: part.problem for part in job.parts if part.state == "unreachable"},
    }


def _failure_document(failure: Failure, *more: str) -> dict[str, object]:
    names = ("host", "rank", "kind", "message", "exit_status")
    document = {name: getattr(failure, name) for name in names}
    return {**document, "class": failure.category, **{name: getattr(failure, name) for name in more}}


def jobs_table(jobs: Sequence[Job]) -> str:
    """Return a line for each job, newest last."""
    if not jobs:
        return "no jobs"
    rows = [("JOB", "STATE", "OWNER", "STARTED", "TIME", "HOSTS", "SCRIPT", "WHY")]
    for job in jobs:
        first, started = job.first_failure, _clock(job.created_at)
        why = f"{_where(first)}{_shortened(_first_line(first.message))}" if first else ""
        took = str(_duration(job))
        rows.append((job.id, job.state.value, job.operator, started, took, fold(job.hosts), job.script, why))
    return aligned(rows)


def job_text(job: Job) -> str:
    """One job in lines: what it is, the hosts by state, and the cause of its failure first."""
    lines = [
        f"job       {job.id}",
        f"state     {job.state.value}" + ("" if job.exit_status is None else f" (exit status {job.exit_status})"),
        f"script    {' '.join([job.script, *job.args])}",
        f"hosts     {fold(job.hosts)} · {counted(job.nproc_per_node, 'rank')} a host",
        f"started   {_clock(job.created_at)} by {job.operator} · {_duration(job)}",
    ]
    if job.restarts:
        spares = [host for host in job.hosts if host not in job.nodes]
        beside = f"; beside it {fold(spares)}" if spares else ""
        lines.append(f"attempt   {job.attempt} of at most {job.restarts + 1}, on {fold(job.nodes)}{beside}")
    lines += [f"skipped   {line}" for line in job.skipped]
    lines += [f"  {_past_line(past)}" for past in job.past]
    for state in sorted({part.state for part in job.parts}):
        parts = [part for part in job.parts if part.state == state]
        lines.append(
            f"{state:<9} {fold(part.host for part in parts)}" + (f": {parts[0].problem}" if parts[0].problem else "")
        )
    return "\n".join([*lines, *trace_lines(job), *left_lines(job), *_failure_lines(job)])


def _past_line(past: PastAttempt) -> str:
    ended = f" ended {_clock(past.ended_at)}" if past.ended_at else ""
    why = f": {_where(past.cause)}{_shortened(_first_line(past.cause.message))}" if past.cause else ""
    return f"attempt {past.number} on {fold(past.hosts)}{ended}{why}"


def conclusion(job: Job) -> str:
    """Return what ends a launch: traces, what it left, earlier attempts, then state and hosts, or a failure's cause."""
    return "\n".join([*trace_lines(job), *left_lines(job), *map(_past_line, job.past), _conclusion(job)])


def left_lines(job: Job) -> list[str]:
    """Return where the files are that the job has written next to its code; hosts with the same files share a line."""
    hosts: dict[tuple[str, ...], list[str]] = {}
    for part in job.parts:
        hosts.setdefault(part.outputs, []).append(part.host)
    where, remedy = f"{_STATE}/jobs/{job.id}/code", "`nodectl jobs clean` removes them"
    return [
        f"new files on {fold(names)} in {where}: {', '.join(files)}; {remedy}"
        for files, names in hosts.items()
        if files
    ]


def why_text(job: Job) -> str:
    """Return what `jobs why` says: the cause first, then what followed and earlier attempts; else the conclusion."""
    if job.first_failure is None or job.state is not JobState.FAILED:
        return conclusion(job)
    after = [*_unheard(job), *_consequences(job), *map(_past_line, job.past)]
    return "\n".join([*cause_lines(job.first_failure), *([""] if after else []), *after])


def _unheard(job: Job) -> list[str]:
    return [f"{fold(job.unreachable)} could not be asked"] if job.unreachable else []


def _conclusion(job: Job) -> str:
    unheard = "".join(f"; {line}" for line in _unheard(job))
    if job.state is JobState.FAILED:
        return "\n".join([*_unheard(job), *_failure_lines(job)])
    took = f" after {_duration(job)}" if job.state.ended else ""
    stopped = f" by {job.stopped_by}" if job.state is JobState.STOPPED and job.stopped_by else ""
    return f"job {job.state.value}{stopped}{took}: {job.id} on {fold(job.nodes) or fold(job.hosts)}{unheard}"


def _failure_lines(job: Job) -> list[str]:
    """Return what followed, folded; then, last and alone, the cause with what speaks for it."""
    if job.first_failure is None:
        return []
    before = _consequences(job)
    return [*before, *([""] if before else []), *cause_lines(job.first_failure)]


def _consequences(job: Job) -> list[str]:
    """Return, by class, on which hosts, how many, and the first words of one; then why there was no other attempt."""
    groups: dict[str, list[Failure]] = {}
    for failure in job.consequences:
        if failure.kind != "terminated":
            groups.setdefault(failure.category or failure.kind, []).append(failure)
    lines = [
        f"then {fold(dict.fromkeys(item.host for item in alike))}: {name}, {counted(len(alike), 'failure')}:"
        f" {_first_line(alike[0].message)}"
        for name, alike in groups.items()
    ]
    more = len(lines) - _MOST_CONSEQUENCES
    why_no_more = [job.no_restart] if job.no_restart else []
    return [*lines[:_MOST_CONSEQUENCES], *([f"… and {more} more"] if more > 0 else []), *why_no_more]


def cause_lines(cause: Failure) -> list[str]:
    """`job failed: host H, rank R: …` with all lines of its message, class, evidence, traceback and remedy."""
    head, *more = cause.message.splitlines() or [""]
    lines = [f"job failed: {_where(cause)}{head}", *(f"    {line}" for line in more)]
    if cause.category:
        lines.append(f"  class: {cause.category}")
    lines += [f"  evidence: {line}" for line in cause.evidence[:_MOST_EVIDENCE]]
    text = cause.traceback.rstrip().splitlines()
    if text:
        left = len(text) - _TRACEBACK_LINES
        lines += ["  traceback:", *([f"    … {left} lines before"] if left > 0 else [])]
        lines += [f"    {line}" for line in text[-_TRACEBACK_LINES:]]
    return [*lines, *([f"  try: {cause.remedy}"] if cause.remedy else [])]


def _shortened(text: str) -> str:
    return text if len(text) <= _WHY_CHARS else f"{text[: _WHY_CHARS - 1]}…"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _where(failure: Failure) -> str:
    """Return the host and the rank that a failure blames; of one that blames nobody, the host that told it first."""
    if failure.rank is None and failure.category in ("collective_timeout", "collective_mismatch"):
        return f"no rank is known to be at fault, first told by host {failure.host}: "
    if failure.rank is None and failure.kind == "time_limit":
        return ""
    return f"host {failure.host}" + ("" if failure.rank is None else f", rank {failure.rank}") + ": "


def plan_text(plan: Mapping[str, Any], container: str = "") -> str:
    """Return the plan as `--dry-run` prints it: hosts, ports, checkpoint, container, profiler, ranks."""
    hosts, count = plan["hosts"], int(plan["nodes"] or len(plan["hosts"]))
    spares = fold(host["name"] for host in hosts[count:])
    start = plan["start"]
    venvs = [plan["venv"], *(f"{host['name']}: {host['venv']}" for host in hosts if host.get("venv"))]
    argv = start["argv"] or [plan["script"], *plan["args"]]
    engine = f"{start['engine']}: " if start["argv"] else "-m " if start["module"] else ""
    lines = [
        f"job         {plan['id']}",
        f"script      {engine}{shlex.join(argv)}",
        *([f"folder      {start['chdir']} of each host, nothing is copied"] if start["chdir"] else []),
        f"hosts       {fold(host['name'] for host in hosts[:count])}{spares and f'; {spares} to spare'}",
        f"ranks       {count * plan['nproc_per_node']} ({plan['nproc_per_node']} a host)",
        f"launcher    {plan['launcher']}" + (f" (environment {'; '.join(venvs)})" if plan["venv"] else ""),
        *([f"container   {container}"] if container else []),
        *([f"trace       {start['trace']}"] if start["trace"] else []),
        f"rendezvous  {hosts[0]['address']} port {plan['master_port']}",
        f"heartbeat   UDP port {plan['heartbeat_port']}, every {plan['beat_s']:g} s, lease {plan['lease_s']:g} s",
        f"variables   {', '.join(plan['env_names']) or 'none handed over'}",
        f"checkpoint  {_checkpoint(plan)}",
        f"restarts    {_restarts(plan)}",
        *(f"skipped     {line}" for line in plan["skipped"]),
        *([f"time limit  {plan['time_limit_s']:g} s"] if plan["time_limit_s"] else []),
        "rank order",
    ]
    places = [*map(str, range(count)), *["-"] * (len(hosts) - count)]  # a spare has no rank
    lines += [
        f"  {place:>4}  {host['name']}  {host['address']}  {host['interface']}"
        for place, host in zip(places, hosts, strict=True)
    ]
    return "\n".join(lines)


def _restarts(plan: Mapping[str, Any]) -> str:
    if not plan["restarts"]:
        return "none (see --restarts, --spares)"
    least = f", on {plan['least_nodes']} hosts at least" if plan["least_nodes"] < plan["nodes"] else ""
    return f"{plan['restarts']}, by the hosts themselves{least}"


def _checkpoint(plan: Mapping[str, Any]) -> str:
    checkpoint = plan["checkpoint"]
    if checkpoint is None:
        return "none (the job starts afresh; see --checkpoint)"
    return f"{checkpoint['dir']} ({'shared by all hosts' if checkpoint['shared'] else 'local to each host'})"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _duration(job: Job) -> timedelta:
    end = job.ended_at if job.ended_at is not None else time.time()
    return timedelta(seconds=max(0, round(end - job.created_at)))


_MOST_FRAMES = 6
_MOST_RANKS = 16


def look_document(look: Look) -> dict[str, object]:
    """Return `ranks`, `verdict`, `missing` (numbers of ranks), `evidence`, `problems` by host."""
    return {**asdict(look), "ranks": [asdict(rank) for rank in look.ranks]}


def taking_document(taking: Taking) -> dict[str, object]:
    """Return `at` (seconds since 1970), `kind`, `why`, and the look as of `look_document`."""
    return {"at": taking.at, "kind": taking.kind, "why": taking.why, "look": look_document(taking.look)}


def takings_text(takings: Sequence[Taking]) -> str:
    """Return what the hosts kept by themselves before the job ended, each with its moment; "" for none."""
    kinds = {"suspicion": "it was taken for hung", "end": "it began to end"}
    parts = [
        f"black box, {_clock(taking.at)}: {kinds.get(taking.kind, taking.kind)}"
        + (f": {taking.why}" if taking.why else "")
        + f"\n{look_text(taking.look)}"
        for taking in takings
    ]
    return "\n\n".join(parts)


def look_text(look: Look) -> str:
    """Return who waits for whom; then ranks at the same place together with their stack, counters and NCCL's word."""
    groups: dict[tuple[bool, str, tuple[str, ...]], list[RankNow]] = defaultdict(list)
    for rank in look.ranks:
        groups[rank.waits, rank.doing, rank.stack].append(rank)
    lines = []
    for (waits, doing, stack), ranks in sorted(groups.items(), key=lambda item: (not item[0][0], item[1][0].rank)):
        lines.append(_head(waits, doing, ranks))
        lines += [f"    {frame}" for frame in stack[:_MOST_FRAMES]]
    lines += [f"evidence: {line}" for line in look.evidence]
    lines += [f"{host}: {problem}" for host, problem in look.problems.items()]
    return "\n".join([look.verdict, "", *lines])


def _head(waits: bool, doing: str, ranks: list[RankNow]) -> str:
    numbers = ", ".join(str(rank.rank) for rank in ranks[:_MOST_RANKS])
    more = f" and {len(ranks) - _MOST_RANKS} more" if len(ranks) > _MOST_RANKS else ""
    where = fold(dict.fromkeys(rank.host for rank in ranks))
    what = f"waits in {ranks[0].call}, {doing}" if waits else doing
    ages = [rank.output_age_s for rank in ranks if rank.output_age_s is not None]
    silence = f"; last output {min(ages):.0f} s ago" if ages else ""
    moved = "; moved" if any(rank.moved for rank in ranks) else ""
    return f"rank {numbers}{more} on {where}: {what}; CPU {max(0.0, *(rank.cpu for rank in ranks)):.2f}{silence}{moved}"


_MISSING = "-"
_HEAD = ("HOST", "STATE", "STEP", "STEPS/S", "OUTPUT", "GPU", "POWER", "IN", "OUT")


def watch_text(
    job_id: str,
    pulses: Sequence[Pulse],
    stalls: Sequence[str],
    width: int | None = None,
) -> str:
    """Progress in the first line, then the hosts, and what stands still; no line wider than `width`."""
    hosts = aligned([_HEAD, *(_row(pulse) for pulse in pulses)]).splitlines()
    problems = [f"{pulse.host}: {pulse.problem}" for pulse in pulses if pulse.problem]
    lines = [_progress(job_id, pulses), *hosts, *problems, *(f"STALL: {line}" for line in stalls)]
    return "\n".join(lines if width is None else (part for line in lines for part in broken(line, width)))


def watch_document(job_id: str, pulses: Sequence[Pulse], stalls: Sequence[str]) -> dict[str, object]:
    """For `--output json`."""
    return {"job": job_id, "hosts": [asdict(pulse) for pulse in pulses], "stalls": list(stalls)}


def _progress(job_id: str, pulses: Sequence[Pulse]) -> str:
    ahead = max(pulses, key=lambda pulse: (pulse.attempt, pulse.step or -1))
    parts = [f"attempt {ahead.attempt}"] if ahead.attempt > 1 else []
    if ahead.step is not None:
        share = f" ({100 * ahead.step / ahead.total:.0f} %)" if ahead.total else ""
        parts.append(f"step {ahead.step}" + (f" of {ahead.total}{share}" if ahead.total else ""))
    if ahead.steps_per_s:
        parts.append(f"{digits(ahead.steps_per_s)} steps/s")
        if ahead.total and ahead.step is not None:
            parts.append(f"{timedelta(seconds=round((ahead.total - ahead.step) / ahead.steps_per_s))} left")
    return f"job {job_id}: {', '.join(parts) or 'no step seen in its output'}"


def _row(pulse: Pulse) -> tuple[str, ...]:
    gpus = pulse.gpus
    step = _MISSING if pulse.step is None else str(pulse.step) + (f"/{pulse.total}" if pulse.total else "")
    used = _MISSING if gpus is None or gpus.use_percent is None else f"{gpus.count}x {gpus.use_percent:.0f} %"
    power = _MISSING if gpus is None or gpus.power_w is None else f"{gpus.power_w:.0f} W"
    age = _MISSING if pulse.output_age_s is None else f"{pulse.output_age_s:.0f} s ago"
    pace = _MISSING if pulse.steps_per_s is None else digits(pulse.steps_per_s)
    rates = (_rate(pulse.in_bytes_s), _rate(pulse.out_bytes_s))
    return (pulse.host, pulse.state, step, pace, age, used, power, *rates)


def _rate(bytes_s: float | None) -> str:
    return _MISSING if bytes_s is None else f"{digits(bytes_s / 1e6)} MB/s"


def trace_lines(job: Job) -> list[str]:
    """Return the shares of each traced rank's steps as a table, then the problems, then the folder of the files."""
    if not job.traces:
        return []
    head = ("RANK", "HOST", "STEPS", "STEP", "COMPUTE", "COMMUNICATION", "OVERLAP", "IDLE")
    return [
        *aligned([head, *map(_trace_row, job.traces)]).splitlines(),
        *(f"no trace of rank {one.rank} on {one.host}: {one.problem}" for one in job.traces if one.problem),
        f"trace files: {_STATE}/jobs/{job.id}/traces on {fold(dict.fromkeys(trace.host for trace in job.traces))}",
    ]


def _trace_row(trace: RankTrace) -> tuple[str, ...]:
    shares = (
        trace.compute_percent, trace.communication_percent, trace.overlap_percent, trace.idle_percent,
    )  # fmt: skip
    cells = (_MISSING if share is None else f"{share:.1f} %" for share in shares)
    step = _MISSING if trace.step_ms is None else f"{digits(trace.step_ms)} ms"
    return (str(trace.rank), trace.host, str(trace.steps), step, *cells)

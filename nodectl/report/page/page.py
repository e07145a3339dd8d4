"""A report from its content: wiring, tuning and jobs as sections, and the order of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.nodeset import fold
from nodectl.common.units import format_size
from nodectl.model.job import JobState
from nodectl.model.status import Status
from nodectl.model.verdict import Outcome, Verdict
from nodectl.report.page.blocks import Block, Cell, Fold, Mark, Number, Section, Table, Text, page_html
from nodectl.report.page.content import Content, Found, Launched, Tuned, Wired
from nodectl.report.page.figures import figures_section
from nodectl.report.page.fleet import clock, findings_section, hosts_section, origin_of
from nodectl.report.topology import alike, fabric_text, nodes_text

_MOST_FAILURES = 20
_SHOWN_CONSEQUENCES = 8
# a fleet of more kinds of wiring shows the largest groups; the others are named
_MOST_KINDS = 4
_NO_WIRING = "No host with GPUs was seen: `nodectl topology`, or `nodectl report` without `--no-hosts`."
_NO_TRIAL = "No trial was run: `nodectl tune trial`."
_NO_JOB = "No job was seen: `nodectl launch`; `nodectl report` asks the hosts for theirs."
_LATEST_S = 253_370_764_800  # in the year 9999
_JOB_STATUSES = {
    JobState.FINISHED: Status.OK,
    JobState.FAILED: Status.FAILED,
    JobState.STOPPED: Status.WARNING,
    JobState.UNKNOWN: Status.UNKNOWN,
}
_OUTCOME_STATUSES = {
    Outcome.WORSE: Status.FAILED,
    Outcome.BETTER: Status.OK,
    Outcome.UNKNOWN: Status.UNKNOWN,
    Outcome.NOISE: Status.SKIPPED,
}


def report_html(content: Content) -> str:
    """Return one HTML file that fetches nothing and runs nothing."""
    made = f"made {content.made} by nodectl {content.nodectl}"
    return page_html(content.title, made, _sections(content))


def _sections(content: Content) -> list[Section]:
    latest = max(content.acceptances, key=lambda one: one.began, default=None)
    seen = (Found(tuple(one.finding for one in latest.seen), origin_of(latest)),) if latest else ()
    launched = [one for one in content.launched if one.jobs]
    return [
        hosts_section(latest, content.found),
        findings_section((*seen, *content.found)),
        Section("wiring", "Wiring", _NO_WIRING, tuple(chain.from_iterable(map(_wiring, content.wired)))),
        figures_section(latest, content.measured, content.kind_of),
        Section("tuning", "Tuning", _NO_TRIAL, tuple(chain.from_iterable(map(_tuning, content.tuned)))),
        Section("jobs", "Jobs", _NO_JOB, tuple(chain.from_iterable(map(_jobs, launched)))),
    ]


def _wiring(one: Wired) -> Iterator[Block]:
    kinds = alike(one.nodes)
    shown = {host: one.nodes[host] for hosts, _ in kinds[:_MOST_KINDS] for host in hosts}
    if shown:
        yield Text(nodes_text(shown), pre=True)
    left = [host for hosts, _ in kinds[_MOST_KINDS:] for host in hosts]
    if left:
        yield Text(f"{counted(len(kinds) - _MOST_KINDS, 'more kind')} of wiring: {fold(left)}.")
    if one.fabric is not None and one.fabric.switches:
        yield Text(fabric_text(one.fabric), pre=True)


def _tuning(one: Tuned) -> Iterator[Block]:
    state = "" if one.complete else " It ended early."
    yield Text(f"{one.name}: {len(one.verdicts)} verdicts against {one.baseline}.{state}")
    largest = max((abs(verdict.gain_percent or 0) for verdict in one.verdicts), default=0)
    rows = [_verdict(verdict, largest) for verdict in sorted(one.verdicts, key=_gravity)]
    columns = ("Profile", "Probe", "What", "Size", "Verdict", "Gain", "95 % interval", "Noise", "Pairs", "Reason")
    yield Table(f"{one.name}: verdicts", columns, rows, one.origin)


def _gravity(verdict: Verdict) -> tuple[object, ...]:
    """Losses, wins, what is undecided, noise; of each the largest first, means before what they are of."""
    rank = list(_OUTCOME_STATUSES).index(verdict.verdict)
    return not verdict.is_regression, rank, not verdict.is_mean, -abs(verdict.gain_percent or 0)


def _verdict(verdict: Verdict, largest: float) -> tuple[Cell, ...]:
    gain, interval = verdict.gain_percent, verdict.interval_percent
    failed = f", {verdict.failed_candidate} failed" if verdict.failed_candidate else ""
    return (
        verdict.profile,
        verdict.probe,
        verdict.subject,
        Number("" if verdict.size_bytes is None else format_size(verdict.size_bytes)),
        Mark(_OUTCOME_STATUSES[verdict.verdict], verdict.verdict),
        Number("" if gain is None else f"{gain:+.1f} %", abs(gain) / largest if gain else None),
        Number("" if interval is None else f"{interval[0]:+.1f} % to {interval[1]:+.1f} %"),
        Number("" if verdict.noise_percent is None else f"{verdict.noise_percent:.1f} %"),
        Number(f"{verdict.pairs}{failed}"),
        verdict.reason,
    )


def _jobs(one: Launched) -> Iterator[Block]:
    """Yield the jobs, newest first, and their failures; a saved job may hold values of any type."""
    jobs = sorted(one.jobs, key=lambda job: -(_seconds(job.get("started_at")) or 0.0))
    longest = max((_took(job) or 0.0 for job in jobs), default=0.0)
    columns = ("Job", "State", "Operator", "Started", "Took", "Attempts", "Hosts", "Script", "What failed first")
    yield Table("Jobs, newest first", columns, [_job(job, longest) for job in jobs], one.origin)
    for job in [job for job in jobs if isinstance(job.get("first_failure"), dict)][:_MOST_FAILURES]:
        yield _failure(job, job["first_failure"])


def _job(job: Mapping[str, Any], longest: float) -> tuple[Cell, ...]:
    started, took, cause = _seconds(job.get("started_at")), _took(job), job.get("first_failure")
    states = {state.value: state for state in JobState}
    state = states.get(str(job.get("state")), JobState.UNKNOWN)
    return (
        str(job.get("id") or "?"),
        Mark(_JOB_STATUSES.get(state, Status.SKIPPED), state),
        str(job.get("operator") or ""),
        "" if started is None else clock(started),
        Number("" if took is None else f"{took:,.0f} s", took / longest if took and took > 0 else None),
        Number(str(len(_list(job.get("past_attempts"))) + 1)),
        fold(map(str, _list(job.get("hosts")))),
        str(job.get("script") or ""),
        _where(cause) if isinstance(cause, dict) else "",
    )


def _took(job: Mapping[str, Any]) -> float | None:
    started, ended = _seconds(job.get("started_at")), _seconds(job.get("ended_at"))
    return None if started is None or ended is None else ended - started


def _seconds(value: object) -> float | None:
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LATEST_S
    return float(str(value)) if is_time else None


def _where(cause: Mapping[str, Any]) -> str:
    rank = "" if cause.get("rank") is None else f", rank {cause['rank']}"
    return f"{cause.get('host')}{rank}: {str(cause.get('message') or '').partition(chr(10))[0]}"


def _failure(job: Mapping[str, Any], cause: Mapping[str, Any]) -> Fold:
    lines = [f"Class: {cause['class']}."] if cause.get("class") else []
    lines += [f"Evidence: {line}" for line in _list(cause.get("evidence"))]
    lines += [f"What to do: {cause['remedy']}"] if cause.get("remedy") else []
    followed = [_where(one) for one in _list(job.get("consequences")) if isinstance(one, dict)]
    lines += [f"Then: {few(followed, _SHOWN_CONSEQUENCES)}"] if followed else []
    text = str(cause.get("traceback") or "").rstrip() or str(cause.get("message") or "")
    name = f"{job.get('id') or '?'} {job.get('script') or ''}".strip()
    blocks = (*map(Text, lines), *([Text(text, pre=True)] if text else []))
    return Fold(Mark(Status.FAILED, "failed"), f"{name}: {_where(cause)}", blocks)


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []

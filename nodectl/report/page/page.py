"""A report from its content: jobs, tuning, articles, wiring and history as sections, and the order of all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import digits, format_size
from nodectl.model.acceptance import Acceptance
from nodectl.model.job import JobState
from nodectl.model.status import Status
from nodectl.model.topology import Fabric, NodeTopology, between
from nodectl.model.verdict import Outcome, Verdict
from nodectl.report.page.blocks import (
    SYMBOLS,
    Block,
    Cell,
    Chart,
    ChartKind,
    Fold,
    Mark,
    Number,
    Page,
    Section,
    Table,
    Tally,
    Text,
    page_html,
)
from nodectl.report.page.content import Benched, Content, Found, Launched, Past, Trend, Tuned, Wired
from nodectl.report.page.figures import figures_section
from nodectl.report.page.fleet import findings_section, fleet_sections, origin_of
from nodectl.report.topology import alike

_MOST_JOBS = 40
_MOST_FAILURES = 20
_SHOWN_CONSEQUENCES = 8
_STATUSES = {
    JobState.FINISHED: Status.OK,
    JobState.FAILED: Status.FAILED,
    JobState.STOPPED: Status.WARNING,
    JobState.UNKNOWN: Status.UNKNOWN,
}


def jobs_section(launched: Sequence[Launched]) -> Section:
    """Return the latest jobs, newest first, and their failures."""
    missing = "No job was seen: `nodectl launch`; `nodectl report` asks the hosts for theirs."
    blocks = chain.from_iterable(_blocks(one) for one in launched if one.jobs)
    return Section("jobs", "Jobs", tuple(blocks), missing)


def _blocks(one: Launched) -> Iterator[Block]:
    jobs = sorted(one.jobs, key=lambda job: -(_seconds(job.get("started_at")) or 0.0))
    spans = {id(job): _spans(job) for job in jobs}
    drawn = [job for job in jobs[:_MOST_JOBS] if spans[id(job)]]
    table = _table(jobs, one)
    if drawn:
        rows = [{"name": _name(job), "spans": spans[id(job)]} for job in drawn]
        failed = sum(1 for job in jobs if _state(job) is JobState.FAILED)
        summary = f"Timeline of {len(drawn)} jobs; {failed} of {len(jobs)} failed."
        yield Chart(ChartKind.TIMELINE, "Jobs, a bar for each attempt", summary, {"rows": rows}, table, one.origin)
    else:
        yield table
    for job in [job for job in jobs if isinstance(job.get("first_failure"), dict)][:_MOST_FAILURES]:
        yield _failure(job, job["first_failure"])


def _name(job: Mapping[str, Any]) -> str:
    return f"{job.get('id') or '?'} {job.get('script') or ''}".strip()


def _state(job: Mapping[str, Any]) -> JobState:
    try:
        return JobState(str(job.get("state")))
    except ValueError:
        return JobState.UNKNOWN


def _seconds(value: object) -> float | None:
    """Return the seconds since 1970 between then and the year 9999, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 253_370_764_800:
        return None
    return float(value)


def _spans(job: Mapping[str, Any]) -> list[dict[str, object]]:
    """Its attempts: those that failed and were followed by another, then the newest."""
    state, status = _state(job), _status(_state(job))
    past = [one for one in _list(job.get("past_attempts")) if isinstance(one, dict)]
    spans = []
    for one in past:
        begun, ended = _seconds(one.get("started_at")), _seconds(one.get("ended_at"))
        if begun is not None and ended is not None:
            spans.append(_span(begun, ended, Status.FAILED, f"attempt {one.get('number')}: failed"))
    started, ended = _seconds(job.get("started_at")), _seconds(job.get("ended_at"))
    begun = max([float(str(span["to"])) / 1000 for span in spans], default=started)
    if begun is not None:
        word = state.value if ended is not None else f"{state.value}, not ended when it was asked"
        spans.append(_span(begun, max(begun, ended if ended is not None else begun), status, word))
    return spans


def _span(begun: float, ended: float, status: Status, word: str) -> dict[str, object]:
    return {
        "from": 1000 * begun,
        "to": 1000 * ended,
        "status": status.value,
        "symbol": SYMBOLS[status],
        "word": word,
    }


def _status(state: JobState) -> Status:
    return _STATUSES.get(state, Status.SKIPPED)


def _table(jobs: Sequence[Mapping[str, Any]], one: Launched) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for job in jobs:
        started, ended = _seconds(job.get("started_at")), _seconds(job.get("ended_at"))
        cause = job.get("first_failure")
        rows.append(
            (
                str(job.get("id") or "?"),
                Mark(_status(_state(job)), _state(job).value),
                str(job.get("operator") or ""),
                "" if started is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started)),
                "" if started is None or ended is None else f"{ended - started:,.0f} s",
                fold(map(str, _list(job.get("hosts")))),
                str(job.get("script") or ""),
                _where(cause) if isinstance(cause, dict) else "",
            )
        )
    columns = ("Job", "State", "Operator", "Started", "Took", "Hosts", "Script", "What failed first")
    return Table("Jobs, newest first", columns, rows, one.origin)


def _where(cause: Mapping[str, Any]) -> str:
    rank = "" if cause.get("rank") is None else f", rank {cause['rank']}"
    return f"{cause.get('host')}{rank}: {str(cause.get('message') or '').partition(chr(10))[0]}"


def _failure(job: Mapping[str, Any], cause: Mapping[str, Any]) -> Fold:
    lines = [f"Class: {cause['class']}."] if cause.get("class") else []
    lines += [f"Evidence: {line}" for line in _list(cause.get("evidence"))]
    lines += [f"What to do: {cause['remedy']}"] if cause.get("remedy") else []
    followed = [_where(one) for one in _list(job.get("consequences")) if isinstance(one, dict)]
    lines += [f"Then: {line}" for line in followed[:_SHOWN_CONSEQUENCES]]
    left = len(followed) - _SHOWN_CONSEQUENCES
    lines += [f"Then {left} more."] if left > 0 else []
    text = str(cause.get("traceback") or "").rstrip() or str(cause.get("message") or "")
    blocks = (*map(Text, lines), *([Text(text, pre=True)] if text else []))
    return Fold(Mark(Status.FAILED, "failed"), f"{_name(job)}: {_where(cause)}", blocks)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else []


# lines that a chart shows; the table below it has all
_MOST_LINES = 30
_TUNING_STATUSES = {
    Outcome.BETTER: Status.OK,
    Outcome.NOISE: Status.SKIPPED,
    Outcome.WORSE: Status.FAILED,
    Outcome.UNKNOWN: Status.UNKNOWN,
}


def tuning_section(tuned: Sequence[Tuned]) -> Section:
    """Return a chart and a table for each trial."""
    missing = "No trial was run: `nodectl tune trial`."
    return Section("tuning", "Tuning", tuple(chain.from_iterable(map(_tuning_blocks, tuned))), missing)


def _tuning_blocks(one: Tuned) -> Iterator[Block]:
    counts = Counter(verdict.verdict for verdict in one.verdicts)
    state = "" if one.complete else " It ended early."
    yield Text(f"{one.name}: {len(one.verdicts)} verdicts against {one.baseline}.{state}")
    yield Tally(tuple((Mark(_TUNING_STATUSES[outcome], outcome.value), counts[outcome]) for outcome in Outcome))
    ordered = sorted(one.verdicts, key=_gravity)
    table = _tuning_table(ordered, one)
    drawn = [verdict for verdict in ordered if verdict.interval_percent is not None][:_MOST_LINES]
    if not drawn:
        yield table
        return
    shown = f"; drawn: {len(drawn)} of {len(ordered)}" if len(drawn) < len(ordered) else ""
    caption = f"{one.name}: gain with 95 % interval; grey band: noise of the baseline{shown}"
    outcomes = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    data = {"rows": [_line(verdict) for verdict in drawn]}
    yield Chart(ChartKind.INTERVALS, caption, f"Gains with their intervals: {outcomes}.", data, table, one.origin)


def _gravity(verdict: Verdict) -> tuple[object, ...]:
    """Losses, wins, what is undecided, noise; of each the largest first, means before what they are of."""
    order = (Outcome.WORSE, Outcome.BETTER, Outcome.UNKNOWN, Outcome.NOISE)
    return not verdict.is_regression, order.index(verdict.verdict), not verdict.is_mean, -abs(verdict.gain_percent or 0)


def _tuning_name(verdict: Verdict) -> str:
    size = "" if verdict.size_bytes is None else format_size(verdict.size_bytes)
    return " ".join(filter(None, [verdict.probe, verdict.subject, size, f"({verdict.profile})"]))


def _line(verdict: Verdict) -> dict[str, object]:
    low, high = verdict.interval_percent or (0.0, 0.0)
    status = _TUNING_STATUSES[verdict.verdict]
    return {
        "name": _tuning_name(verdict),
        "verdict": verdict.verdict.value,
        "status": status.value,
        "symbol": SYMBOLS[status],
        "gain": verdict.gain_percent or 0.0,
        "low": low,
        "high": high,
        "noise": verdict.noise_percent or 0.0,
    }


def _tuning_table(verdicts: Sequence[Verdict], one: Tuned) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for verdict in verdicts:
        low, high = verdict.interval_percent or (None, None)
        failed = f", {verdict.failed_candidate} failed" if verdict.failed_candidate else ""
        rows.append(
            (
                verdict.profile,
                verdict.probe,
                verdict.subject,
                Number("" if verdict.size_bytes is None else format_size(verdict.size_bytes)),
                Mark(_TUNING_STATUSES[verdict.verdict], verdict.verdict.value),
                Number(_percent(verdict.gain_percent)),
                Number("" if low is None or high is None else f"{_percent(low)} to {_percent(high)}"),
                Number("" if verdict.noise_percent is None else f"{verdict.noise_percent:.1f} %"),
                Number(f"{verdict.pairs}{failed}"),
                verdict.reason,
            )
        )
    columns = ("Profile", "Probe", "What", "Size", "Verdict", "Gain", "95 % interval", "Noise", "Pairs", "Reason")
    return Table(f"{one.name}: verdicts", columns, rows, one.origin)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} %"


_COLUMNS = ("Measured", "What", "Here", "Unit", "The article", "Its unit", "Its row", "Comparable", "Because")
# what names a row, in the documents that have rows
_NAMES = ("name", "rate", "what", "mode", "host", "batch_size")
# where a row keeps the value of a column of the article's
_PLACES = ("training", "retrieval")
_DEEPEST = 8
_MOST = 10**300


def articles_section(benched: Sequence[Benched]) -> Section:
    """Return a table for each document."""
    missing = "No table of the articles is given: `nodectl --output json bench …` into files, and `--from FILE`."
    return Section("articles", "Beside the articles", tuple(map(_articles_table, benched)), missing)


def _articles_table(one: Benched) -> Block:
    rows = list(_rows(one))
    if not rows:
        return Text(f"{one.name} ({one.origin.source}) holds no figure beside one of an article.")
    return Table(f"{one.name}, beside the article", _COLUMNS, rows, one.origin)


def _rows(one: Benched) -> Iterator[tuple[Cell, ...]]:
    for owner, beside in _besides(one.document):
        for column, theirs in beside:
            reasons = theirs.get("because")
            because = "; ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons or "")
            yield (
                _articles_name(owner),
                column,
                *_here(owner, column),
                Number(_number(theirs.get("value", theirs.get("before")))),
                str(theirs.get("unit") or ""),
                str(theirs.get("row") or ""),
                Mark(Status.OK, "yes") if theirs.get("comparable") else Mark(Status.WARNING, "no"),
                because,
            )


def _besides(node: object, depth: int = 0) -> Iterator[tuple[Mapping[str, Any], list[tuple[str, Mapping[str, Any]]]]]:
    """Every object that has figures of the article beside it, with these by their column."""
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        beside = list(_figures(node.get("article")))
        if beside:
            yield node, beside
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _besides(child, depth + 1)


def _figures(article: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(article, list):
        yield from (pair for one in article for pair in _figures(one))
    elif isinstance(article, dict) and "comparable" in article:
        yield str(article.get("column") or ""), article
    elif isinstance(article, dict):
        yield from ((str(name), one) for name, one in article.items() if isinstance(one, dict) and "comparable" in one)


def _articles_name(owner: Mapping[str, Any]) -> str:
    conditions = owner.get("conditions")
    fields = {**conditions, **owner} if isinstance(conditions, dict) else owner
    texts = [value for name in _NAMES if isinstance(value := fields.get(name), str)]
    numbers = [
        f"{name.replace('_', ' ')} {value}" for name in _NAMES if isinstance(value := fields.get(name), int | float)
    ]
    return ", ".join(dict.fromkeys(filter(None, [*texts, *numbers])))


def _here(owner: Mapping[str, Any], column: str) -> tuple[Cell, Cell]:
    """Return what was measured in this column, and its unit."""
    for place in _PLACES:
        inside = owner.get(place)
        if isinstance(inside, dict) and isinstance(inside.get(column), int | float):
            return Number(_number(inside[column])), str(inside.get("unit") or "")
        if column == place and isinstance(inside, dict):
            return Number(_number(inside.get("p50_ms"))), "ms"
    change = owner.get("change")
    if isinstance(change, dict):
        return Number(_number(change.get("before"))), str(owner.get("unit") or "")
    unit = "x" if column == "speed_up" else str(owner.get("unit") or "")
    field = {"memory": "memory_gb", "gpu_use": "gpu_use_percent"}.get(column, column)
    value = owner.get(field) if field in owner else owner.get("value")
    return Number(_number(value)), {"memory_gb": "GB", "gpu_use_percent": "%"}.get(field, unit)


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    # whole numbers of JSON have no end, and our figures do
    return digits(value) if isinstance(value, float) or abs(value) < _MOST else str(value)


# of more kinds of wiring the largest groups are shown: a fleet of so many kinds is told by its findings
_MOST_KINDS = 4


def wiring_section(wired: Sequence[Wired]) -> Section:
    """Tables of all that is known; nothing where no host with GPUs was seen."""
    missing = "No host with GPUs was seen: `nodectl topology`, or `nodectl report` without `--no-hosts`."
    return Section("wiring", "Wiring", tuple(chain.from_iterable(map(_wiring_blocks, wired))), missing)


def _wiring_blocks(one: Wired) -> Iterator[Block]:
    kinds = alike(one.nodes)
    for hosts, node in kinds[:_MOST_KINDS]:
        names = f"{fold(hosts)} ({counted(len(hosts), 'host')}, wired alike)" if len(hosts) > 1 else hosts[0]
        yield Text(_words(node))
        yield _uses(node, names, one)
    left = [host for hosts, _ in kinds[_MOST_KINDS:] for host in hosts]
    if left:
        yield Text(f"{counted(len(kinds) - _MOST_KINDS, 'more kind')} of wiring, not shown here: {fold(left)}.")
    if one.fabric is not None and one.fabric.switches:
        yield from _fabric(one.fabric, one)


def _words(node: NodeTopology) -> str:
    uses = [
        f"{gpu.name} uses {use.device or use.nic} over {use.link or 'an unknown link'}"
        for gpu in node.gpus
        if (use := node.gpu_nic.get(gpu.name)) is not None and use.nic is not None
    ]
    parts = f"{counted(len(node.gpus), 'GPU')} and {counted(len(node.nics), 'RDMA NIC')}"
    return f"{parts}. {'; '.join(uses)}."


def _uses(node: NodeTopology, names: str, one: Wired) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for gpu in node.gpus:
        use = node.gpu_nic.get(gpu.name)
        is_narrow = bool(gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max)
        slot = f"x{gpu.pcie_width}" if gpu.pcie_width else ""
        others = sorted({between(node.links, gpu.name, other.name) or "?" for other in node.gpus if other is not gpu})
        rows.append(
            (
                gpu.name,
                gpu.model or "",
                gpu.numa or "",
                Mark(Status.WARNING, f"{slot} of x{gpu.pcie_width_max}") if is_narrow else slot,
                ", ".join(others),
                (use.device or use.nic or "none") if use else "none",
                use.link or "" if use else "",
                use.why if use else "",
            )
        )
    columns = ("GPU", "Model", "NUMA node", "PCIe", "To other GPUs", "NIC", "Link", "Why")
    return Table(f"GPUs of {names}", columns, rows, one.origin)


def _fabric(fabric: Fabric, one: Wired) -> Iterator[Block]:
    hops = "unknown" if fabric.max_hops is None else counted(fabric.max_hops, "switch")
    size = f"{counted(len(fabric.switches), 'switch')}, {counted(len(fabric.rank_order), 'host')}"
    yield Text(f"The fabric, told by {fabric.source}: {size}, at most {hops} between two hosts.")
    rows: list[tuple[Cell, ...]] = [
        (
            load.switch,
            Number(str(load.tier)),
            Number(str(load.hosts)),
            Number(str(load.ports_down)),
            Number(str(load.ports_up)),
        )
        for load in fabric.switches
    ]
    columns = ("Switch", "Tier", "Hosts", "Ports down", "Ports up")
    yield Table("Switches", columns, rows, one.origin)


def trends_section(past: Past | None) -> Section:
    """Return a chart for each trend."""
    missing = "The history holds no two runs of one thing: `nodectl probe` keeps what it measures."
    charts = tuple(_chart(trend, past) for trend in past.trends) if past else ()
    return Section("history", "History", charts, missing)


def _chart(trend: Trend, past: Past) -> Chart:
    values = [value for _, value in trend.points]
    rows: list[tuple[Cell, ...]] = [(_clock(when), Number(trend.unit.short(value))) for when, value in trend.points]
    ends = f"{trend.unit.short(values[0])} to {trend.unit.short(values[-1])}"
    summary = f"Line chart of {trend.label} over {len(values)} runs, {ends}."
    line = {"name": trend.label, "points": [[1000 * when, value] for when, value in trend.points]}
    data = {"x": "time", "unit": trend.unit.name, "lines": [line], "scale": True}
    caption = f"{trend.label}, in {trend.unit.name}"
    return Chart(
        ChartKind.LINES, caption, summary, data, Table(caption, ("Run", "Value"), rows, past.origin), past.origin
    )


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def report_html(content: Content) -> str:
    """One HTML file that fetches nothing."""
    facts = (f"made {content.made} by nodectl {content.nodectl}", *content.notes)
    return page_html(Page(content.title, facts, tuple(_sections(content))))


def _sections(content: Content) -> Iterator[Section]:
    yield from fleet_sections(content.acceptances, content.found)
    yield findings_section(content.found or _found(content.acceptances))
    yield wiring_section(content.wired)
    yield figures_section(content.acceptances, content.measured, content.kind_of)
    yield tuning_section(content.tuned)
    yield jobs_section(content.launched)
    yield articles_section(content.benched)
    yield trends_section(content.past)


def _found(acceptances: Sequence[Acceptance]) -> tuple[Found, ...]:
    """Return what the latest acceptance saw, where nobody looked at the hosts besides."""
    latest = max(acceptances, key=lambda one: one.began, default=None)
    return (Found(tuple(one.finding for one in latest.seen), origin_of(latest)),) if latest else ()

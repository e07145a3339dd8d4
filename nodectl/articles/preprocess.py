"""The preprocessing of article 000 on each host: pools of several sizes, threads as there and processes beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from statistics import median
from time import monotonic
from typing import Any

from nodectl.articles.claims import figures
from nodectl.articles.comparing import Compared, Judge, Ratio, elsewhere, ratios, with_spread
from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import time_text
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import fit, given_up, marked
from nodectl.probes.each import Node
from nodectl.probes.endpoints import NOT_PROVISIONED, Look, ask_all
from nodectl.probes.events import Event, failure, run_program
from nodectl.probes.schedule import by_machine, turns
from nodectl.report.table import aligned, broken
from nodectl.transport.base import Transport

NAME = "preprocess"
ARTICLE, CLAIM = 0, "preprocessing"
MODES = ("threads", "processes")
_MODULE = "articles.preprocess"
_LOOK_S, _SLACK_S = 60.0, 600.0
# importing pandas, making the files
_START_S = 6.0
ROWS, WORKERS = 100_000, (1, 2, 4, 8)
# without a budget: a table is to take minutes also on machines that have other work, or hold many of the hosts
_USUAL_S = 600.0


@dataclass(frozen=True, slots=True)
class PreprocessOptions(ProbeOptions):
    """`workers` are the sizes of the sweep's pools; there are as many files as the largest has, of so many `rows`."""

    workers: tuple[int, ...] = WORKERS
    rows: int = ROWS


@dataclass(frozen=True, slots=True)
class Case:
    """So many files by a pool of so many workers."""

    files: int
    workers: int


def article_case() -> tuple[Case, Case]:
    """Return the article's two cases: its files by the smaller pool, and by the larger one."""
    conditions = figures(ARTICLE, CLAIM)[0].conditions
    files, small, large = (int(conditions[name]) for name in ("files", "baseline_workers", "workers"))
    return Case(files, small), Case(files, large)


def cases(workers: Sequence[int]) -> list[Case]:
    """Return the sweep's cases, smallest pool first, then the article's."""
    return [*(Case(max(workers), size) for size in sorted(workers)), *article_case()]


def run_preprocess(transport: Transport, hosts: Sequence[Host], options: PreprocessOptions, note: Note) -> ProbeResult:
    """Files per second of every case on every host; hosts of one machine in turn."""
    look = Look(_MODULE, lambda _: ["look"], "ready", _LOOK_S, _python)
    ready, findings = ask_all(transport, hosts, NAME, look, _ready, options.forks)
    absent = {host.name: f"the host has no {_python(host)}" for host in hosts}
    findings = [
        replace(finding, remedy=NOT_PROVISIONED) if finding.actual == absent[finding.host] else finding
        for finding in findings
    ]
    if not ready:
        return ProbeResult(findings=tuple(findings))
    in_turn, many = turns(ready, options.forks), len(MODES) * len(cases(options.workers))
    asked = options
    options, amount = fit(PROBE, options, cost_s=lambda amount: in_turn * _cost_s(amount, many))
    cost_s = in_turn * _cost_s(amount, many)
    note(
        f"{NAME}: {counted(len(ready), 'host')}, {in_turn} in turn, {counted(many, 'pool')} each, "
        f"{time_text(cost_s)} or more{given_up(options)}"
    )
    left_s = _USUAL_S if asked.repetitions is None else inf
    if options.ends_at is not None:
        left_s = options.ends_at - monotonic()

    def measure(one: Node) -> ProbeResult:
        return _measure(transport, one, options, amount, left_s / in_turn - _START_S, note)

    result = by_machine(transport, ready, measure, options.forks)
    return marked(ProbeResult(result.measurements, (*findings, *result.findings)), options)


def _cost_s(amount: Amount, many: int = 1) -> float:
    return _START_S + many * amount.repetitions * amount.duration_s


def _python(host: Host) -> str:
    return f"{venv_of(host)}/bin/python"


def _ready(host: Host, answer: Event) -> Node | Finding:
    missing = [name for name in ("pandas", "pyarrow") if answer.get(name) is None]
    if not missing:
        return Node(host, answer)
    remedy = (
        f"add {' and '.join(missing)} to the packages of its stack and run `nodectl provision`, "
        f"or `{_python(host)} -m pip install {' '.join(missing)}`"
    )
    return host_finding(NAME, host.name, Status.UNKNOWN, f"no {' and no '.join(missing)} in {venv_of(host)}", remedy)


def _measure(
    transport: Transport, ready: Node, options: PreprocessOptions, amount: Amount, share_s: float, note: Note
) -> ProbeResult:
    wanted = cases(options.workers)
    texts = [f"{mode}:{case.files}:{case.workers}" for case in wanted for mode in MODES]
    limits = [f"--repetitions={amount.repetitions}", f"--seconds={max(0.0, share_s):.0f}"]
    args = ["measure", f"--rows={options.rows}", *limits, *texts]
    deadline_s = _cost_s(amount, len(texts)) + _SLACK_S
    done, events = run_program(transport, ready.host, _MODULE, args, timeout_s=deadline_s, python=_python(ready.host))
    taken: dict[tuple[str, Case], list[float]] = {}
    for event in events.of("timed"):
        taken.setdefault((event["mode"], Case(event["files"], event["workers"])), []).append(event["seconds"])
    shared = {
        "rows": options.rows,
        **{name: value for event in events.of("files")[:1] for name, value in event.items() if name == "columns"},
        **{name: ready.answer[name] for name in ("cpus", "cpu", "pandas", "pyarrow")},
    }
    rounds = amount.repetitions
    if done.ok and taken and (rounds := max(map(len, taken.values()))) < amount.repetitions:
        counts = f"{rounds} of {counted(amount.repetitions, 'repetition')}"
        note(f"{NAME}: {ready.host.name}: {counts}: more would take longer than its share of {time_text(share_s)}")
    # a case of which one repetition is missing has been measured less often than the others
    measurements = tuple(
        _measurement(ready.host, mode, case, seconds, shared)
        for (mode, case), seconds in taken.items()
        if len(seconds) == rounds
    )
    if done.ok and len(measurements) == len(texts):
        return ProbeResult(measurements)
    status = Status.FAILED if done.outcome is Outcome.RAN and events.of("error") else Status.UNKNOWN
    return ProbeResult(measurements, (host_finding(NAME, ready.host.name, status, *failure(done, events)),))


def _measurement(host: Host, mode: str, case: Case, seconds: Sequence[float], shared: dict[str, object]) -> Measurement:
    values = [case.files / duration_s for duration_s in seconds]
    value = median(values)
    conditions = {"mode": mode, **asdict(case), **shared, "repetitions": len(values), "seconds": list(seconds)}
    return Measurement(NAME, (host.name,), value, "files/s", host.name, None, spread(values, value), conditions)


PROBE = Probe(
    name=NAME,
    summary="Table files read, filled and encoded by pools of threads and of processes.",
    run=run_preprocess,
    options=PreprocessOptions,
    results=MeasurementKind(
        units=(Unit("files/s"),),
        identity=("mode", "files", "workers", "rows"),
        shown="{files} files by {workers} {mode}, {rows} rows each",
    ),
    # ten seconds of each pool
    usual=Amount(repetitions=20, duration_s=0.5),
    least=Amount(repetitions=1, duration_s=0.5),
    cost_s=_cost_s,
    listed=False,
)


# a measurement's host, mode and case
_Key = tuple[str, str, Case]


def pool_ratios(measurements: Sequence[Measurement], judge: Judge) -> dict[_Key, Ratio]:
    """Each pool to the smallest one over the same files, which itself has none."""
    by_key = {(each.hosts[0], str(each.conditions["mode"]), _case(each)): each for each in measurements}
    first: dict[tuple[str, str, int], _Key] = {}
    for host, mode, case in sorted(by_key, key=lambda key: key[2].workers):
        first.setdefault((host, mode, case.files), (host, mode, case))
    many = {
        key: Compared(_label(key), _label(base), NAME, measurement.unit, _rates(measurement), _rates(by_key[base]))
        for key, measurement in by_key.items()
        if (base := first[key[0], key[1], key[2].files]) != key
    }
    ratios_by_label = ratios({_label(key): comparison for key, comparison in many.items()}, judge)
    return {key: ratios_by_label[_label(key)] for key in many}


def _label(key: _Key) -> str:
    host, mode, case = key
    return f"{case.files} files by {case.workers} {mode} on {host}"


def _rates(measured: Measurement) -> list[float]:
    seconds: Any = measured.conditions["seconds"]
    return [_case(measured).files / duration_s for duration_s in seconds]


def _case(measured: Measurement) -> Case:
    files, workers = (measured.conditions[name] for name in ("files", "workers"))
    return Case(int(str(files)), int(str(workers)))


def preprocess_document(result: ProbeResult, judge: Judge) -> dict[str, object]:
    """Measurements, the article's case and findings for JSON."""
    _, large = article_case()
    return {
        "measurements": [asdict(measurement) for measurement in result.measurements],
        "article_case": [
            {"host": host, "mode": mode, "speed_up": ratio.value, "speed_up_verdict": ratio.document,
             "article": [figure.document for figure in figures(ARTICLE, CLAIM)]}
            for (host, mode, case), ratio in pool_ratios(result.measurements, judge).items()
            if case == large
        ],
        "findings": [asdict(finding) for finding in result.findings],
    }  # fmt: skip


def preprocess_table(measurements: Sequence[Measurement], width: int, judge: Judge) -> str:
    """Return a line for each pool size with both modes, then what the article's case comes to."""
    header = ("HOST", "FILES", "WORKERS", "THREADS", "OF FIRST", "PROCESSES", "OF FIRST")
    units = ("", "", "", "files/s", "", "files/s", "")
    by_case: dict[tuple[str, Case], dict[str, Measurement]] = {}
    for measurement in measurements:
        measured_modes = by_case.setdefault((measurement.hosts[0], _case(measurement)), {})
        measured_modes[str(measurement.conditions["mode"])] = measurement
    ratios_by_pool = pool_ratios(measurements, judge)
    rows = []
    for (host, case), modes in by_case.items():
        cells = []
        for mode in MODES:
            measured = modes.get(mode)
            if measured is None:
                cells += ["-", "-"]
                continue
            ratio = ratios_by_pool.get((host, mode, case))
            cells += [with_spread(measured), "first" if ratio is None else ratio.text]
        rows.append((host, str(case.files), str(case.workers), *cells))
    return "\n".join([aligned([header, units, *rows]), "", *_remarks(measurements, width, ratios_by_pool)])


def _remarks(measurements: Sequence[Measurement], width: int, ratios_by_pool: Mapping[_Key, Ratio]) -> list[str]:
    small, large = article_case()
    cpus: dict[tuple[object, object], dict[str, None]] = {}
    for measurement in measurements:
        conditions = measurement.conditions
        cpus.setdefault((conditions["cpus"], conditions["cpu"]), {})[measurement.hosts[0]] = None
    lines = [f"{fold(hosts)}: {counted(number, 'processor')}, {model or 'unknown'}" for (number, model), hosts in
             cpus.items()]  # fmt: skip
    for mode in MODES:
        texts: dict[str, list[str]] = {}
        for (host, own, case), ratio in ratios_by_pool.items():
            if own == mode and case == large:
                texts.setdefault(ratio.text, []).append(host)
        summary = "; ".join(f"{text} on {fold(hosts)}" for text, hosts in texts.items())
        if summary:
            lines.append(f"{large.workers} {mode} against {small.workers}, {small.files} files: {summary}")
    untold = dict.fromkeys(ratio.verdict.reason for ratio in ratios_by_pool.values() if ratio.value is None)
    lines += [f"unknown: {reason} (--repetitions)" for reason in untold]
    bounds = " to ".join(f"{figure.value:g}" for figure in figures(ARTICLE, CLAIM))
    busy = min(small.files, small.workers)
    lines.append(f"the article: {bounds} times; but {small.files} files occupy {busy} workers of either pool")
    lines.append(elsewhere(ARTICLE))
    return [piece for line in lines for piece in broken(line, width)]

"""The network sweep: training and retrieval at each rate of the links; the tables of both, beside article 2."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from nodectl.articles.claims import Figure, article, figures
from nodectl.articles.comparing import Compared, Judge, Ratio, elsewhere, nearest, ratios, with_spread
from nodectl.articles.retrieval import Table, run_retrieval
from nodectl.articles.training import TrainingOptions, run_training
from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import digits
from nodectl.errors import LabError, UsageError
from nodectl.lab.network import described, lab_of, shaping
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult, Run
from nodectl.probes.budget import BudgetError, share_s
from nodectl.probes.endpoints import find_endpoints
from nodectl.probes.nominal import link_rate_gbit_s
from nodectl.probes.rounds import more
from nodectl.report.table import aligned, broken
from nodectl.transport.base import Transport

NAME = "network-sweep"
# what is to be sent costs more than what is to be searched
_ROWS_A_HOST = 2000
_DIM, _K, _BATCH = 768, 100, 64


@dataclass(frozen=True, slots=True)
class LinkRate:
    """The rate at which a row is measured; `put_on` makes it so, where that can be done."""

    name: str | None
    rate_bits: int | None
    put_on: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Hold what was measured at one rate, by the article's columns; what could not be measured is absent."""

    link: LinkRate
    cells: Mapping[str, Measurement]

    @property
    def many_nodes(self) -> Measurement | None:
        """Return the training on all nodes."""
        return self.cells.get("many_nodes")


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rows from the lowest rate to the highest, all measurements, and findings."""

    rows: tuple[Row, ...]
    result: ProbeResult

    @property
    def ratio(self) -> float | None:
        """Throughput of many nodes at the highest rate to that at the lowest; None for fewer than two rates."""
        measured = [row.many_nodes for row in self.rows]
        if len(measured) < 2 or measured[0] is None or measured[-1] is None:
            return None
        return measured[-1].value / measured[0].value

    @property
    def rising(self) -> bool | None:
        """More throughput of many nodes at each higher rate; None if that was not measured."""
        values = [row.many_nodes.value for row in self.rows if row.many_nodes]
        if len(values) < 2 or len(values) < len(self.rows):
            return None
        return all(low < high for low, high in pairwise(values))


def table_for(hosts: int) -> Table:
    """Return the table that the sweep searches: it grows with the hosts, so that a shard keeps its size."""
    return Table(_ROWS_A_HOST * hosts, _DIM, _K, (_BATCH,))


def run_sweep(
    transport: Transport,
    hosts: Sequence[Host],
    links: Sequence[LinkRate],
    options: TrainingOptions,
    table: Table,
    note: Note,
) -> Sweep:
    """Measure at one rate after the other; each measurement gets its share of the time until `options.ends_at`."""
    if len(hosts) < 2:
        raise UsageError("the network sweep needs two hosts or more, and one is selected", more(hosts))
    table.check(len(hosts))
    steps: list[tuple[str, Sequence[Host], Run[TrainingOptions]]] = [
        ("one_node", hosts[:1], run_training),
        ("many_nodes", hosts, run_training),
        ("retrieval", hosts, partial(run_retrieval, table=table)),
    ]
    total, rows, left = ProbeResult(), [], len(links) * len(steps)
    for link in sorted(links, key=lambda link: link.rate_bits or 0):
        if link.put_on:
            link.put_on()
        cells: dict[str, Measurement] = {}
        for name, members, run in steps:
            note(f"{NAME}: {name.replace('_', ' ')}, links at {link.name or 'their own rate'}")
            try:
                result = run(transport, members, _with_share(options, left), note)
            except BudgetError as error:
                if not total.measurements:  # nothing is lost by refusing
                    raise
                finding = Finding("", NAME, Status.UNKNOWN, "budget", actual=error.message, remedy=error.remedy)
                result = ProbeResult(findings=(finding,))
            left -= 1
            measured = tuple(_at(measurement, link) for measurement in result.measurements)
            if measured:
                cells[name] = measured[0]
            # who cannot take part is told of once, not by each of the measurements
            fresh = tuple(finding for finding in result.findings if finding not in total.findings)
            total += ProbeResult(measured, fresh)
        rows.append(Row(link, cells))
    sweep = Sweep(tuple(rows), total)
    return replace(sweep, result=total + ProbeResult(findings=tuple(_flat(sweep))))


def _with_share(options: TrainingOptions, left: int) -> TrainingOptions:
    if options.ends_at is None:
        return options
    now = time.monotonic()
    return replace(options, ends_at=now + share_s(options.ends_at - now, left))


def _at(measurement: Measurement, link: LinkRate) -> Measurement:
    """In a lab the rate was chosen, and is part of what was measured."""
    chosen = {"rate": link.name} if link.put_on else {}
    return replace(measurement, conditions={**measurement.conditions, **chosen, "rate_bits": link.rate_bits})


def _flat(sweep: Sweep) -> list[Finding]:
    flat = []
    for low, high in pairwise(sweep.rows):
        if low.many_nodes and high.many_nodes and high.many_nodes.value <= low.many_nodes.value:
            actual = (
                f"training on {counted(len(high.many_nodes.hosts), 'host')} is no faster than at {low.link.name}: "
                f"{high.many_nodes.value:.4g} to {low.many_nodes.value:.4g} samples/s"
            )
            remedy = "the network is not what limits it: look at the hosts' processors, or send more with --gradient"
            subject = f"at {high.link.name}"
            flat.append(Finding("", NAME, Status.WARNING, subject, "none", "more samples/s", actual, remedy))
    return flat


# the article's 1, 10 and 20 Gbit/s, scaled to what a few processors can drive
LAB_RATES = (10**8, 10**9, 2 * 10**9)
_GBIT = 10**9


@contextmanager
def lab_links(hosts: Sequence[Host], rates: Sequence[int]) -> Iterator[list[LinkRate] | None]:
    """Links whose rate can be chosen, put back at the end; None if the hosts are no lab's."""
    marked = [host for host in hosts if host.is_true("nodectl_lab")]
    folder = lab_of(hosts) if marked else None
    if not marked:
        yield None
        return
    if len(marked) < len(hosts):
        raise UsageError("some of the hosts are a lab's and some are not", "choose with --limit")
    if folder is None:
        raise LabError(
            "the hosts are a lab's, and of no lab that is up here: their links cannot be given a rate",
            "run it where the lab was brought up, by the same operator",
        )
    if os.geteuid() != 0:
        raise LabError(f"giving the links of the lab '{folder.name}' another rate needs root", "run it as root")
    with shaping(folder) as put_on:
        yield [LinkRate(described(rate), rate, partial(put_on, rate)) for rate in sorted(set(rates or LAB_RATES))]


def real_links(transport: Transport, hosts: Sequence[Host], options: TrainingOptions, note: Note) -> list[LinkRate]:
    """One link: what the slowest host's interface says of itself."""
    endpoints, _ = find_endpoints(transport, hosts, NAME, options)
    rates = [link_rate_gbit_s(endpoint.host, endpoint.speed_mbit) for endpoint in endpoints]
    known = [rate for rate in rates if rate]
    if not known or len(known) < len(hosts):
        note(f"{NAME}: not every host's interface tells its speed: the row has no rate")
        return [LinkRate(None, None)]
    rate_bits = round(min(known) * _GBIT)
    return [LinkRate(described(rate_bits), rate_bits)]


ARTICLE, CLAIM = 2, "network_sweep"
_COLUMNS = ("one_node", "many_nodes", "retrieval")


def published() -> dict[str, tuple[Figure, ...]]:
    """Return the article's figures by their column, lowest rate first."""
    table = sorted(figures(ARTICLE, CLAIM), key=lambda figure: figure.conditions["link_gbit"])
    return {column: tuple(figure for figure in table if figure.column == column) for column in _COLUMNS}


def article_ratio() -> float:
    """Return the article's throughput of many nodes at the highest rate to that at the lowest."""
    many = published()["many_nodes"]
    return many[-1].value / many[0].value


def link_ratios(sweep: Sweep, judge: Judge) -> dict[str, Ratio]:
    """Return, by each higher rate's name, the ratio of many nodes there to many nodes at the lowest rate."""
    measured = {row.link.name or "": row.many_nodes for row in sweep.rows if row.many_nodes}
    (lowest, base), *others = measured.items() if measured else (("", None),)
    if base is None or base is not sweep.rows[0].many_nodes:
        return {}
    many = {
        name: Compared(name, lowest, measurement.probe, measurement.unit, _windows(measurement), _windows(base))
        for name, measurement in others
    }
    return ratios(many, judge)


def _windows(measured: Measurement) -> Sequence[float]:
    values: Any = measured.conditions.get("values_samples_s") or ()
    return tuple(values)


def sweep_document(sweep: Sweep, judge: Judge, *, scaled: bool) -> dict[str, object]:
    """Return the sweep as plain data for JSON."""
    highest = link_ratios(sweep, judge).get(sweep.rows[-1].link.name or "") if sweep.rows else None
    return {
        "scaled": scaled,
        "rows": [_row_document(row) for row in sweep.rows],
        "ratio": sweep.ratio,
        "ratio_verdict": highest and highest.document,
        "rising": sweep.rising,
        "article_ratio": round(article_ratio(), 4),
        "article": {"title": article(ARTICLE).title, "rows": [asdict(figure) for figure in figures(ARTICLE, CLAIM)]},
        "measurements": [asdict(measurement) for measurement in sweep.result.measurements],
        "findings": [asdict(finding) for finding in sweep.result.findings],
    }


def _row_document(row: Row) -> dict[str, object]:
    conditions = row.cells["retrieval"].conditions if "retrieval" in row.cells else {}
    rate = {} if row.link.rate_bits is None else {"link_gbit": row.link.rate_bits / 1e9}
    values, spreads = ({name: getattr(row.cells.get(name), field, None) for name in _COLUMNS}
                       for field in ("value", "spread"))  # fmt: skip
    return {
        "rate": row.link.name,
        "rate_bits": row.link.rate_bits,
        "training": {"one_node": values["one_node"], "many_nodes": values["many_nodes"], "unit": "samples/s"},
        "retrieval": {name: conditions.get(name) for name in ("p50_ms", "p99_ms", "queries_s")},
        "spread": spreads,
        "article": {
            name: nearest(published()[name], {**conditions_of(cell), **rate}).document
            for name, cell in row.cells.items()
        },
    }


def conditions_of(measured: Measurement) -> dict[str, object]:
    """Return the conditions of a training or a retrieval, by the names that claims have for them."""
    given = measured.conditions
    ours = {
        "device": given.get("device"),
        "devices": given.get("ranks"),
        "nodes": len(measured.hosts),
        "batch_per_rank": given.get("batch_size"),
        "precision": given.get("precision"),
    }
    return {name: value for name, value in ours.items() if value is not None}


def sweep_table(sweep: Sweep, width: int, judge: Judge, *, scaled: bool, hosts: int) -> str:
    """Return the article's table, measured, the article's own rows in the same columns, and what both come to."""
    names = ("LINK", "ONE NODE", "ALL NODES", "OF LOWEST", "RETRIEVAL", "")
    units = ("", "samples/s", "samples/s", "all nodes", "p50 ms", "p99 ms")
    ratios_by_link = link_ratios(sweep, judge)
    texts = {name: ratio.text for name, ratio in ratios_by_link.items()}
    texts |= {sweep.rows[0].link.name or "": "lowest"} if ratios_by_link else {}
    ours = [_cells(row, texts.get(row.link.name or "", "-")) for row in sweep.rows]
    table = aligned([names, units, *ours, *_article_rows()])
    notes = [f"here: {counted(hosts, 'host')}", *_remarks(sweep, ratios_by_link, scaled=scaled)]
    remarks = [piece for line in notes for piece in broken(line, width)]
    return "\n".join([table, "", *remarks])


def _cells(row: Row, of_lowest: str) -> tuple[str, ...]:
    one, many, retrieval = (row.cells.get(name) for name in _COLUMNS)
    p99 = retrieval and retrieval.conditions.get("p99_ms")
    shown = (with_spread(one), with_spread(many), of_lowest, with_spread(retrieval))
    return (f"here, {row.link.name or 'unknown'}", *shown, digits(p99) if isinstance(p99, float) else "-")


def _article_rows() -> list[tuple[str, ...]]:
    columns = published()
    lowest = columns["many_nodes"][0].value
    return [
        (
            f"article, {one.row}",
            digits(one.value),
            digits(many.value),
            f"{many.value / lowest:.2f} x",
            digits(latency.value),
            "-",
        )
        for one, many, latency in zip(*columns.values(), strict=True)
    ]


def _remarks(sweep: Sweep, ratios_by_link: Mapping[str, Ratio], *, scaled: bool) -> list[str]:
    many = published()["many_nodes"]
    first, last = (figure.conditions["link_gbit"] for figure in (many[0], many[-1]))
    theirs = f"the article: {article_ratio():.2f} times, {first} to {last} Gbit/s"
    lines = []
    low, high = sweep.rows[0].link.name, sweep.rows[-1].link.name
    if ratio := ratios_by_link.get(high or ""):
        why = f", {ratio.verdict.reason}" if ratio.value is None else ""
        lines.append(f"many nodes, {low} to {high}: {ratio.text}{why} ({theirs})")
    if scaled:
        lines.append("scaled: a lab's links, its hosts share this machine's processors and memory")
    else:
        lines.append(f"one rate: the links are what they are here ({theirs})")
    lines += ["the article gives no p99", elsewhere(ARTICLE)]
    return lines


def retrieval_document(result: ProbeResult) -> dict[str, object]:
    """Return the measurements as plain data for JSON, each with the article's figure that is nearest."""
    theirs = published()["retrieval"]
    return {
        "measurements": [
            {**asdict(measured), "article": nearest(theirs, conditions_of(measured)).document}
            for measured in result.measurements
        ],
        "findings": [asdict(finding) for finding in result.findings],
    }


def retrieval_table(measurements: Sequence[Measurement], width: int) -> str:
    """Return a line for each batch size."""
    header = ("HOSTS", "BATCH", "p50 ms", "SPREAD", "p99 ms", "QUERIES/s", "SEARCH ms")
    first = measurements[0].conditions
    title = f"exact top-{first['k']} of {first['rows']} rows of {first['dim']}, {first['shards']} shards"
    checked = f"{first['checked_queries']} queries over {first['checked_rows']} rows"
    confirmed = "equal to brute force" if first["correct"] else "NOT equal to brute force"
    title += f" on {first['device']}, asked by {first['front']}; {checked}: {confirmed}"
    theirs = ", ".join(f"{digits(figure.value)} ms at {figure.row}" for figure in published()["retrieval"])
    table = aligned([header, *map(_retrieval_cells, measurements)])
    remarks = [piece for line in (title, f"the article: {theirs}", elsewhere(ARTICLE)) for piece in broken(line, width)]
    return "\n".join([table, "", *remarks])


def _retrieval_cells(measured: Measurement) -> tuple[str, ...]:
    conditions = measured.conditions
    numbers = [conditions[name] for name in ("p99_ms", "queries_s", "search_ms")]
    p99, *others = (digits(number) if isinstance(number, int | float) else "-" for number in numbers)
    off = "-" if measured.spread is None else f"{100 * measured.spread:.1f} %"
    return (fold(measured.hosts), str(conditions["batch_size"]), digits(measured.value), off, p99, *others)

"""Results of `nodectl bench` as JSON and as tables, beside the figures that the articles published."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

from nodectl.articles.sweep import Row, Sweep
from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.resources import data_dir
from nodectl.common.units import digits
from nodectl.model.measurement import Measurement
from nodectl.report.table import aligned


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One column of the article's table."""

    rate_gbit_s: float
    one_node_samples_s: float
    many_nodes_samples_s: float
    retrieval_ms: float


@dataclass(frozen=True, slots=True)
class Published:
    """The article's figures, lowest rate first."""

    source: str
    hardware: str
    network: str
    rows: tuple[PublishedRow, ...]

    @property
    def ratio(self) -> float:
        """Throughput of many nodes at the highest rate to that at the lowest."""
        return self.rows[-1].many_nodes_samples_s / self.rows[0].many_nodes_samples_s


@lru_cache(maxsize=1)
def published() -> Published:
    """The rows that the article printed, from the data that nodectl ships."""
    document = json.loads((data_dir() / "articles" / "network-sweep.json").read_text(encoding="utf-8"))
    rows = sorted((PublishedRow(**row) for row in document.pop("rows")), key=lambda row: row.rate_gbit_s)
    return Published(rows=tuple(rows), **document)


def sweep_document(sweep: Sweep, *, scaled: bool) -> dict[str, object]:
    """The sweep as plain data for JSON."""
    article = published()
    return {
        "scaled": scaled,
        "rows": [_row_document(row) for row in sweep.rows],
        "ratio": sweep.ratio,
        "rising": sweep.rising,
        "article_ratio": round(article.ratio, 4),
        "article": asdict(article),
        "measurements": [asdict(measurement) for measurement in sweep.result.measurements],
        "findings": [asdict(finding) for finding in sweep.result.findings],
    }


def _row_document(row: Row) -> dict[str, object]:
    conditions = row.retrieval.conditions if row.retrieval else {}
    training = {"one_node": row.one_node, "many_nodes": row.many_nodes}
    cells = {**training, "retrieval": row.retrieval}
    return {
        "rate": row.link.name,
        "rate_bits": row.link.rate_bits,
        "training": {**{name: cell and cell.value for name, cell in training.items()}, "unit": "samples/s"},
        "retrieval": {name: conditions.get(name) for name in ("p50_ms", "p99_ms", "queries_s")},
        "spread": {name: cell and cell.spread for name, cell in cells.items()},
    }


def sweep_table(sweep: Sweep, *, scaled: bool, hosts: int) -> str:
    """The article's table, measured, the article's own rows in the same columns, and what both come to."""
    names = ("LINK", "ONE NODE", "ALL NODES", "OF LOWEST", "RETRIEVAL", "")
    units = ("", "samples/s", "samples/s", "all nodes", "p50 ms", "p99 ms")
    lowest = sweep.rows[0].many_nodes
    ours = [_cells(row, lowest.value if lowest and len(sweep.rows) > 1 else None) for row in sweep.rows]
    table = aligned([names, units, *ours, *map(_article_cells, published().rows)])
    return "\n".join([table, "", f"here: {counted(hosts, 'host')}", *_remarks(sweep, scaled=scaled)])


def _cells(row: Row, lowest: float | None) -> tuple[str, ...]:
    p99 = row.retrieval.conditions.get("p99_ms") if row.retrieval else None
    return (
        f"here, {row.link.name or 'unknown'}",
        _with_spread(row.one_node),
        _with_spread(row.many_nodes),
        f"{row.many_nodes.value / lowest:.2f} x" if row.many_nodes and lowest else "-",
        _with_spread(row.retrieval),
        digits(p99) if isinstance(p99, float) else "-",
    )


def _article_cells(row: PublishedRow) -> tuple[str, ...]:
    return (
        f"article, {row.rate_gbit_s:g} Gbit/s",
        digits(row.one_node_samples_s),
        digits(row.many_nodes_samples_s),
        f"{row.many_nodes_samples_s / published().rows[0].many_nodes_samples_s:.2f} x",
        digits(row.retrieval_ms),
        "-",
    )


def _remarks(sweep: Sweep, *, scaled: bool) -> list[str]:
    article = published()
    first, last = article.rows[0], article.rows[-1]
    theirs = f"the article: {article.ratio:.2f} times, {first.rate_gbit_s:g} to {last.rate_gbit_s:g} Gbit/s"
    lines = []
    if sweep.ratio is not None:
        low, high = sweep.rows[0].link.name, sweep.rows[-1].link.name
        lines.append(f"many nodes, {low} to {high}: {sweep.ratio:.2f} times ({theirs})")
    if scaled:
        lines.append("scaled: a lab's links, its hosts share this machine's processors and memory")
    else:
        lines.append(f"one rate: the links are what they are here ({theirs})")
    lines.append(f"the article's rows: {article.hardware}; {article.network}; it gives no p99")
    return lines


def retrieval_table(measurements: Sequence[Measurement]) -> str:
    """A line for each batch size."""
    header = ("HOSTS", "BATCH", "p50 ms", "SPREAD", "p99 ms", "QUERIES/s", "SEARCH ms", "OTHER ms", "TRIP ms")
    first = measurements[0].conditions
    title = f"exact top-{first['k']} of {first['rows']} rows of {first['dim']}, {first['shards']} shards"
    checked = f"{first['checked_queries']} queries over {first['checked_rows']} rows"
    confirmed = "equal to brute force" if first["correct"] else "NOT equal to brute force"
    title += f" on {first['device']}, asked by {first['front']}; {checked}: {confirmed}"
    return f"{aligned([header, *map(_retrieval_cells, measurements)])}\n\n{title}"


def _retrieval_cells(measured: Measurement) -> tuple[str, ...]:
    conditions = measured.conditions
    numbers = [conditions[name] for name in ("p99_ms", "queries_s", "search_ms", "other_ms", "trip_ms")]
    p99, *others = (digits(number) if isinstance(number, int | float) else "-" for number in numbers)
    off = "-" if measured.spread is None else f"{100 * measured.spread:.1f} %"
    return (fold(measured.hosts), str(conditions["batch_size"]), digits(measured.value), off, p99, *others)


def _with_spread(measured: Measurement | None) -> str:
    if measured is None:
        return "-"
    off = "" if measured.spread is None else f" ±{50 * measured.spread:.1f} %"
    return f"{digits(measured.value)}{off}"

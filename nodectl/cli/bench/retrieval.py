"""Measure exact top-k over an embedding table of which every host holds a shard."""

from __future__ import annotations

import click

from nodectl.cli.app import App
from nodectl.cli.bench.shared import Measuring, finish, measuring, read_counts
from nodectl.cli.measuring import hold, keep
from nodectl.cli.options import Read, Seconds
from nodectl.cli.terminal import note, terminal_width


@click.command()
@click.option(
    "--rows",
    type=click.IntRange(1, 2**40),
    default=100_000,
    show_default=True,
    help="Rows of the whole table, over all hosts.",
)
@click.option("--dim", type=click.IntRange(1), default=256, show_default=True, help="Values in one row.")
@click.option(
    "--k", type=click.IntRange(1), default=10, show_default=True, help="Number of best rows that each query returns."
)
@click.option(
    "--batch",
    type=Read(read_counts, "counts"),
    default="1,32",
    show_default=True,
    help="Numbers of queries that are sent at a time.",
)
@click.option("--duration", type=Seconds(0.05, 3600), help="Duration of one repetition.  Default: 1.")
@measuring
@click.pass_obj
def retrieval(
    app: App, measured: Measuring, rows: int, dim: int, k: int, batch: tuple[int, ...], duration: float | None
) -> None:
    """Measure exact top-k over an embedding table of which every host holds a shard: latency and queries per second.

    The first host asks all shards and merges their answers.  A few queries are checked against brute force.  Exit
    status 1: something failed or is wrong; 3: a host could not be reached or has no torch.
    """
    from nodectl.articles.document import retrieval_document, retrieval_lines, retrieval_table
    from nodectl.articles.retrieval import Table, run_retrieval
    from nodectl.probes.base import ProbeOptions, ProbeResult

    table = Table(rows, dim, k, batch)
    table.check(len(app.hosts))
    options = measured.over(app, ProbeOptions(duration_s=duration))
    with hold(app, "bench retrieval", force=measured.force) as holds:
        result = ProbeResult(findings=holds.findings)
        if not holds.refused:
            result += run_retrieval(app.transport, app.hosts, options, note, table)
    keep(app, result, None)
    text = retrieval_table(result.measurements, terminal_width()) if result.measurements else ""
    lines = retrieval_lines(result.measurements)
    finish(app, "bench-retrieval", retrieval_document(result), text, lines, result.findings)

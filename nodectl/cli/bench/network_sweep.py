"""Measure training on one node and on all, and retrieval, at each rate of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.bench.shared import Measuring, finish, measuring
from nodectl.cli.measuring import hold, keep
from nodectl.cli.options import Read, Seconds
from nodectl.cli.terminal import note, terminal_width
from nodectl.errors import UsageError
from nodectl.probes.options import sizes as as_sizes

if TYPE_CHECKING:
    from nodectl.articles.retrieval import Table
    from nodectl.articles.sweep import Sweep
    from nodectl.articles.training import TrainingOptions


def read_rates(text: str) -> tuple[int, ...]:
    """`100mbit,1gbit` as bits per second, each once; ValueError where one is no rate."""
    from nodectl.lab.spec import parse_rate

    try:
        return tuple(dict.fromkeys(map(parse_rate, text.split(","))))
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.remedy}") from error


@click.command("network-sweep")
@click.option(
    "--rates",
    type=Read(read_rates),
    metavar="RATE[,RATE…]",
    help="Rates that a lab's links are set to.  Default there: 100mbit,1gbit,2gbit.",
)
@click.option("--duration", type=Seconds(0.1, 3600), help="Duration of one repetition.  Default: 2; retrieval 1.")
@click.option(
    "--gradient",
    type=Read(as_sizes),
    metavar="SIZE",
    help="Gradients that one training step exchanges.  [8MiB; GPUs: 256MiB]",
)
@click.option("--rows", type=click.IntRange(1, 2**40), help="retrieval: rows of the table.  Default: 2000 a host.")
@click.option("--dim", type=click.IntRange(1), help="retrieval: values in a row.  Default: 768.")
@click.option(
    "--k", type=click.IntRange(1), help="retrieval: number of best rows that each query returns.  Default: 100."
)
@measuring
@click.pass_obj
def network_sweep(
    app: App,
    measured: Measuring,
    rates: tuple[int, ...] | None,
    duration: float | None,
    gradient: tuple[int, ...] | None,
    rows: int | None,
    dim: int | None,
    k: int | None,
) -> None:
    """Measure training on one node and on all, and retrieval, at each rate of the network.

    In a lab the links are given each rate in turn, and their own again at the end: a scaled table.  Other hosts are
    measured at the rate that they have: one row.  Exit status 1: a measurement failed; 3: one could not be made.
    """
    from nodectl.articles.document import sweep_document, sweep_lines, sweep_table
    from nodectl.articles.sweep import table_for
    from nodectl.articles.training import TrainingOptions
    from nodectl.trials.families import judge_all

    if gradient is not None and len(gradient) != 1:
        raise UsageError("--gradient takes one size, not several", "write 8MiB")
    asked = TrainingOptions(duration_s=duration, gradient_bytes=gradient[0] if gradient else None)
    options, table_asked = measured.over(app, asked), table_for(len(app.hosts), rows, dim, k)
    sweep, scaled = _sweep(app, options, rates or (), table_asked, force=measured.force)
    table = sweep_table(sweep, terminal_width(), judge_all, scaled=scaled, hosts=len(app.hosts)) if sweep.rows else ""
    document = sweep_document(sweep, judge_all, scaled=scaled)
    finish(app, "bench-network-sweep", document, table, sweep_lines(sweep), sweep.result.findings)


def _sweep(
    app: App, options: TrainingOptions, rates: Sequence[int], table: Table, *, force: bool
) -> tuple[Sweep, bool]:
    """Return what was measured, and whether on a lab's links."""
    from nodectl.articles.sweep import Sweep, lab_links, real_links, run_sweep
    from nodectl.probes.base import ProbeResult

    with lab_links(app.hosts, rates) as links, hold(app, "bench network-sweep", force=force) as holds:
        scaled, refused = links is not None, ProbeResult(findings=holds.findings)
        if holds.refused:
            return Sweep((), refused), scaled
        if links is None:
            if rates:
                note("network-sweep: these hosts are no lab: their links stay as they are, and --rates does nothing")
            links = real_links(app.transport, app.hosts, options, note)
        sweep = run_sweep(app.transport, app.hosts, links, options, table, note)
    keep(app, sweep.result, None)
    return replace(sweep, result=refused + sweep.result), scaled

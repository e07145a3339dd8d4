"""Table files read, filled and encoded by pools of threads and of processes."""

from __future__ import annotations

from time import monotonic

import click

from nodectl.cli.app import App
from nodectl.cli.bench.shared import budget_option, csv_option, finish, read_counts
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.measuring import hold, keep
from nodectl.cli.options import Read, force_option
from nodectl.cli.terminal import note, terminal_width


@click.command()
@click.option(
    "--workers", type=Read(read_counts, "counts"), metavar="N[,N…]", help="Sizes of the pools.  Default: 1,2,4,8."
)
@click.option("--rows", type=click.IntRange(8, 10**8), help="Rows of one file.  Default: 100000.")
@click.option(
    "--repetitions",
    type=click.IntRange(1, 100),
    help="How often each value is measured; the median counts.  Default: 3.",
)
@budget_option
@force_option
@include_cordoned_option
@csv_option
@click.pass_obj
def preprocess(
    app: App,
    workers: tuple[int, ...] | None,
    rows: int | None,
    repetitions: int | None,
    budget: float | None,
    force: bool,
) -> None:
    """Read, fill and one-hot encode Parquet files by pools of several sizes: threads, and processes beside them.

    A sweep over as many files as the largest pool has workers, then the article's case: 4 files by 32 workers and by
    128. Needs pandas and pyarrow in the hosts' environment.  Exit status 3: a host has them not.
    """
    from nodectl.articles.preprocess import (
        ROWS,
        WORKERS,
        PreprocessOptions,
        preprocess_document,
        preprocess_lines,
        preprocess_table,
        run_preprocess,
    )
    from nodectl.probes.base import ProbeResult
    from nodectl.trials.families import judge_all

    options = PreprocessOptions(
        workers=workers or WORKERS,
        rows=rows or ROWS,
        repetitions=repetitions,
        forks=app.forks,
        ends_at=budget and monotonic() + budget,
    )
    with hold(app, "bench preprocess", force=force) as holds:
        result = ProbeResult(findings=holds.findings)
        if not holds.refused:
            result += run_preprocess(app.transport, app.hosts, options, note)
    keep(app, result, None)
    text = preprocess_table(result.measurements, terminal_width(), judge_all) if result.measurements else ""
    lines = preprocess_lines(result.measurements, judge_all)
    finish(app, "bench-preprocess", preprocess_document(result, judge_all), text, lines, result.findings)

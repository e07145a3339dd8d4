"""`nodectl bench`: The articles' tables, measured on these hosts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from time import monotonic
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.measuring import conclude, hold, keep
from nodectl.cli.options import Read, Seconds, force_option, options
from nodectl.cli.terminal import note
from nodectl.errors import UsageError
from nodectl.probes.options import duration as as_seconds
from nodectl.probes.options import sizes as as_sizes

if TYPE_CHECKING:
    from nodectl.articles.retrieval import Table
    from nodectl.articles.sweep import Sweep
    from nodectl.articles.training import TrainingOptions

_MOST_COUNT = 1 << 20


def read_counts(text: str) -> tuple[int, ...]:
    """`1,8,64`, each once, in their order; ValueError where one is no count."""
    counts = text.split(",")
    for count in counts:
        if not re.fullmatch(r"[1-9]\d{0,6}", count.strip()) or int(count) > _MOST_COUNT:
            raise ValueError(f"{count!r} is no count; write 1,8,64")
    return tuple(dict.fromkeys(map(int, counts)))


def read_rates(text: str) -> tuple[int, ...]:
    """`100mbit,1gbit` as bits per second, each once; ValueError where one is no rate."""
    from nodectl.lab.spec import parse_rate

    try:
        return tuple(dict.fromkeys(map(parse_rate, text.split(","))))
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.remedy}") from error


_measuring = options(
    click.option("--repetitions", type=click.IntRange(2, 100), help="The median counts.  Default: 3, training 5."),
    click.option("--port", type=click.IntRange(1, 65535), help="Where hosts listen.  Default: any free port."),
    click.option("--interface", help="The network to measure.  Default: that of the host's address."),
    click.option(
        "--budget",
        type=Read(as_seconds),
        metavar="SECONDS|5m",
        help="For all of it: repetitions and their length are cut down to fit, and what cannot is refused.",
    ),
    force_option,
)


@click.group()
def bench() -> None:
    """The articles' tables, measured on these hosts."""


@bench.command("network-sweep")
@click.option(
    "--rates",
    type=Read(read_rates),
    metavar="RATE[,RATE…]",
    help="Of a lab's links.  Default there: 100mbit,1gbit,2gbit.",
)
@click.option("--duration", type=Seconds(0.1, 3600), help="Seconds of a repetition.  Default: 2; retrieval 1.")
@click.option(
    "--gradient", type=Read(as_sizes), metavar="SIZE", help="What a training step sends.  [8MiB; GPUs: 256MiB]"
)
@click.option("--rows", type=click.IntRange(1, 2**40), help="retrieval: of the table.  Default: 2000 a host.")
@click.option("--dim", type=click.IntRange(1), help="retrieval: values of a row.  Default: 768.")
@click.option("--k", type=click.IntRange(1), help="retrieval: best rows of each query.  Default: 100.")
@_measuring
@click.pass_obj
def network_sweep(
    app: App,
    rates: tuple[int, ...] | None,
    duration: float | None,
    gradient: tuple[int, ...] | None,
    rows: int | None,
    dim: int | None,
    k: int | None,
    repetitions: int | None,
    port: int | None,
    interface: str | None,
    budget: float | None,
    force: bool,
) -> None:
    """Training on one node and on all, and retrieval, at each rate of the network.

    In a lab the links are given each rate in turn, and their own again at the end: a scaled table.  Other hosts are
    measured at the rate that they have: one row.  Exit status 1: a measurement failed; 3: one could not be made.
    """
    from nodectl.articles.document import sweep_document, sweep_table
    from nodectl.articles.sweep import table_for
    from nodectl.articles.training import TrainingOptions

    if gradient is not None and len(gradient) != 1:
        raise UsageError("--gradient takes one size", "write 8MiB")
    options = TrainingOptions(
        duration_s=duration,
        repetitions=repetitions,
        port=port,
        interface=interface,
        forks=app.forks,
        gradient_bytes=gradient[0] if gradient else None,
        ends_at=budget and monotonic() + budget,
    )
    sweep, scaled = _sweep(app, options, rates or (), table_for(len(app.hosts), rows, dim, k), force=force)
    table = sweep_table(sweep, scaled=scaled, hosts=len(app.hosts)) if sweep.rows else ""
    conclude(app, "bench-network-sweep", sweep_document(sweep, scaled=scaled), table, sweep.result.findings)


def _sweep(
    app: App, options: TrainingOptions, rates: Sequence[int], table: Table, *, force: bool
) -> tuple[Sweep, bool]:
    """What was measured, and whether on a lab's links."""
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


@bench.command()
@click.option("--rows", type=click.IntRange(1, 2**40), default=100_000, show_default=True, help="Of the whole table.")
@click.option("--dim", type=click.IntRange(1), default=256, show_default=True, help="Values of a row.")
@click.option("--k", type=click.IntRange(1), default=10, show_default=True, help="Best rows of each query.")
@click.option(
    "--batch",
    type=Read(read_counts, "counts"),
    default="1,32",
    show_default=True,
    help="Queries at a time; several sizes.",
)
@click.option("--duration", type=Seconds(0.05, 3600), help="Seconds of a repetition.  Default: 1.")
@_measuring
@click.pass_obj
def retrieval(
    app: App,
    rows: int,
    dim: int,
    k: int,
    batch: tuple[int, ...],
    duration: float | None,
    repetitions: int | None,
    port: int | None,
    interface: str | None,
    budget: float | None,
    force: bool,
) -> None:
    """Exact top-k over an embedding table of which every host holds a shard: latency and queries per second.

    The first host asks all shards and merges their answers.  A few queries are checked against brute force.  Exit
    status 1: something failed or is wrong; 3: a host could not be reached or has no torch.
    """
    from nodectl.articles.document import retrieval_table
    from nodectl.articles.retrieval import Table, run_retrieval
    from nodectl.probes.base import ProbeOptions, ProbeResult

    table = Table(rows, dim, k, batch)
    table.check(len(app.hosts))
    options = ProbeOptions(
        duration_s=duration,
        repetitions=repetitions,
        port=port,
        interface=interface,
        forks=app.forks,
        ends_at=budget and monotonic() + budget,
    )
    with hold(app, "bench retrieval", force=force) as holds:
        result = ProbeResult(findings=holds.findings)
        if not holds.refused:
            result += run_retrieval(app.transport, app.hosts, options, note, table)
    keep(app, result, None)
    text = retrieval_table(result.measurements) if result.measurements else ""
    conclude(app, "bench-retrieval", asdict(result), text, result.findings)

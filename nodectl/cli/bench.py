"""`nodectl bench`: The articles' tables, measured on these hosts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeVar

import click

from nodectl.articles import claims as claimed
from nodectl.articles.claims import article_text, claims_document, claims_text
from nodectl.articles.compare import compare as compared
from nodectl.articles.compare import compare_document, compare_text
from nodectl.articles.preprocess import (
    ROWS,
    WORKERS,
    PreprocessOptions,
    preprocess_document,
    preprocess_table,
    run_preprocess,
)
from nodectl.articles.programs import PROBE, Runs, WorkloadOptions, run_plan
from nodectl.articles.retrieval import Table, run_retrieval
from nodectl.articles.runs import Run, read_paths
from nodectl.articles.scaling import (
    MODES,
    SCALING,
    Wish,
    plan_for,
    rows_of,
    scaling_document,
    scaling_table,
)
from nodectl.articles.sweep import (
    Sweep,
    lab_links,
    real_links,
    retrieval_document,
    retrieval_table,
    run_sweep,
    sweep_document,
    sweep_table,
    table_for,
)
from nodectl.articles.training import TrainingOptions
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.measuring import conclude, hold, keep, measure
from nodectl.cli.options import (
    FORCE_HELP,
    WORKLOADS,
    OneOf,
    Read,
    Seconds,
    argument,
    option,
    option_group,
    takes,
)
from nodectl.cli.terminal import note, terminal_width
from nodectl.errors import UsageError
from nodectl.lab.spec import parse_rate
from nodectl.probes.base import ProbeOptions, ProbeResult
from nodectl.probes.options import duration as as_seconds
from nodectl.probes.options import sizes as as_sizes
from nodectl.trials.families import judge_all

_Own = TypeVar("_Own", bound="ProbeOptions")
_MOST_COUNT = 1 << 20


def read_counts(text: str) -> tuple[int, ...]:
    """Return `1,8,64`, each once, in their order; ValueError if one is no count."""
    counts = text.split(",")
    for count in counts:
        if not re.fullmatch(r"[1-9]\d{0,6}", count.strip()) or int(count) > _MOST_COUNT:
            raise ValueError(f"{count!r} is no count; write 1,8,64")
    return tuple(dict.fromkeys(map(int, counts)))


BUDGET_HELP = "Time for the whole measurement; repetitions are shortened to fit, and what cannot fit is refused."


@option_group
class Measuring:
    """The options of all that measure between hosts."""

    repetitions: int | None = option(
        "--repetitions",
        "How often each value is measured; the median counts.  Default: 3, training 5.",
        type=click.IntRange(2, 100),
    )
    port: int | None = option(
        "--port", "Port on which the hosts listen.  Default: any free port.", type=click.IntRange(1, 65535)
    )
    interface: str | None = option("--interface", "The network to measure.  Default: that of the host's address.")
    budget: float | None = option("--budget", BUDGET_HELP, type=Read(as_seconds), metavar="SECONDS|5m")
    force: bool = option("--force", FORCE_HELP)

    def over(self, app: App, options: _Own) -> _Own:
        """Return a probe's options with these in them; the budget counts from now."""
        ends_at = self.budget and monotonic() + self.budget
        return replace(
            options,
            repetitions=self.repetitions,
            port=self.port,
            interface=self.interface,
            forks=app.forks,
            ends_at=ends_at,
        )


@click.group()
def bench() -> None:
    """Measure the articles' tables on these hosts."""


@bench.command()
@click.argument("article", type=int, required=False)
@click.pass_obj
def claims(app: App, article: int | None) -> None:
    """Show what the articles claim, figure by figure, what is true of it, and what measures it; no host is asked.

    ARTICLE is a number; its other numbers, and where they are in nodectl or why they are not, come with it.
    """
    chosen = dict(claimed.articles()) if article is None else {article: claimed.article(article)}
    width = terminal_width()
    text = claims_text(chosen, width) if article is None else article_text(article, chosen[article], width)
    app.show("bench-claims", claims_document(chosen), text)


@bench.command()
@click.argument("before")
@click.argument("after")
@click.pass_obj
def compare(app: App, before: str, after: str) -> None:
    """Compare two ways to train by step time, total time, GPU utilisation and network.

    BEFORE and AFTER are each a file, a folder of files, or several of them with commas between: logs with the JSON line
    that ends a workload's output, or JSON documents of `nodectl bench`. Every result in them is a repetition; the first
    of one side is paired with the first of the other, so take them in turns. Five make a verdict.
    """
    sections = compared(_runs(before), _runs(after), judge_all)
    app.show("bench-compare", compare_document(sections), compare_text(sections, terminal_width()))


def _runs(given: str) -> list[Run]:
    parts = [given] if given and Path(given).exists() else given.split(",")
    if lost := [part for part in parts if not part or not Path(part).exists()]:
        raise UsageError(f"{', '.join(lost) or repr(given)}: no such file", "name a file or a folder")
    if len({Path(part).resolve() for part in parts}) < len(parts):
        raise UsageError(f"{given} names one file twice, which is one run", "give the file of each run once")
    return read_paths([Path(part) for part in parts])


def read_rates(text: str) -> tuple[int, ...]:
    """Return `100mbit,1gbit` as bits per second, each once; ValueError if one is no rate."""
    try:
        return tuple(dict.fromkeys(map(parse_rate, text.split(","))))
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.remedy}") from error


@option_group
class _NetworkSweep:
    measured: Measuring
    rates: tuple[int, ...] | None = option(
        "--rates",
        "Rates that a lab's links are set to.  Default there: 100mbit,1gbit,2gbit.",
        type=Read(read_rates),
        metavar="RATE[,RATE…]",
    )
    duration: float | None = option(
        "--duration", "Duration of one repetition.  Default: 2; retrieval 1.", type=Seconds(0.1, 3600)
    )
    gradient: tuple[int, ...] | None = option(
        "--gradient",
        "Gradients that one training step exchanges.  [8MiB; GPUs: 256MiB]",
        type=Read(as_sizes),
        metavar="SIZE",
    )


@bench.command("network-sweep")
@takes(_NetworkSweep)
@include_cordoned_option
@click.pass_obj
def network_sweep(app: App, asked: _NetworkSweep) -> None:
    """Measure training on one node and on all, and retrieval, at each rate of the network.

    In a lab the links are given each rate in turn, and their own again at the end: a scaled table.  Other hosts are
    measured at the rate that they have: one row.  Exit status 1: a measurement failed; 3: one could not be made.
    """
    if asked.gradient is not None and len(asked.gradient) != 1:
        raise UsageError("--gradient takes one size, not several", "write 8MiB")
    training = TrainingOptions(duration_s=asked.duration, gradient_bytes=asked.gradient[0] if asked.gradient else None)
    options, table_asked = asked.measured.over(app, training), table_for(len(app.hosts))
    sweep, scaled = _sweep(app, options, asked.rates or (), table_asked, force=asked.measured.force)
    table = sweep_table(sweep, terminal_width(), judge_all, scaled=scaled, hosts=len(app.hosts)) if sweep.rows else ""
    document = sweep_document(sweep, judge_all, scaled=scaled)
    conclude(app, "bench-network-sweep", document, table, sweep.result.findings)


def _sweep(
    app: App, options: TrainingOptions, rates: Sequence[int], table: Table, *, force: bool
) -> tuple[Sweep, bool]:
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


@option_group
class _Preprocess:
    budget: float | None = option("--budget", BUDGET_HELP, type=Read(as_seconds), metavar="SECONDS|5m")
    force: bool = option("--force", FORCE_HELP)
    workers: tuple[int, ...] | None = option(
        "--workers", "Sizes of the pools.  Default: 1,2,4,8.", type=Read(read_counts, "counts"), metavar="N[,N…]"
    )
    rows: int | None = option("--rows", "Rows of one file.  Default: 100000.", type=click.IntRange(8, 10**8))
    repetitions: int | None = option(
        "--repetitions",
        "How often each value is measured; the median counts.  Default: 3.",
        type=click.IntRange(1, 100),
    )


@bench.command()
@takes(_Preprocess)
@include_cordoned_option
@click.pass_obj
def preprocess(app: App, asked: _Preprocess) -> None:
    """Read, fill and one-hot encode Parquet files by pools of several sizes: threads, and processes beside them.

    A sweep over as many files as the largest pool has workers, then the article's case: 4 files by 32 workers and by
    128. Needs pandas and pyarrow in the hosts' environment.  Exit status 3: a host has them not.
    """
    options = PreprocessOptions(
        workers=asked.workers or WORKERS,
        rows=asked.rows or ROWS,
        repetitions=asked.repetitions,
        forks=app.forks,
        ends_at=asked.budget and monotonic() + asked.budget,
    )
    run = partial(run_preprocess, app.transport, app.hosts, options, note)
    result = measure(app, "bench preprocess", run, force=asked.force)
    text = preprocess_table(result.measurements, terminal_width(), judge_all) if result.measurements else ""
    conclude(app, "bench-preprocess", preprocess_document(result, judge_all), text, result.findings)


@option_group
class _Retrieval:
    measured: Measuring
    rows: int = option(
        "--rows", "Rows of the whole table, over all hosts.", type=click.IntRange(1, 2**40), default=100_000
    )
    dim: int = option("--dim", "Values in one row.", type=click.IntRange(1), default=256)
    k: int = option("--k", "Number of best rows that each query returns.", type=click.IntRange(1), default=10)
    batch: tuple[int, ...] = option(
        "--batch", "Numbers of queries that are sent at a time.", type=Read(read_counts, "counts"), default="1,32"
    )
    duration: float | None = option("--duration", "Duration of one repetition.  Default: 1.", type=Seconds(0.05, 3600))


@bench.command()
@takes(_Retrieval)
@include_cordoned_option
@click.pass_obj
def retrieval(app: App, asked: _Retrieval) -> None:
    """Measure exact top-k over an embedding table of which every host holds a shard: latency and queries per second.

    The first host asks all shards and merges their answers.  A few queries are checked against brute force.  Exit
    status 1: something failed or is wrong; 3: a host could not be reached or has no torch.
    """
    table = Table(asked.rows, asked.dim, asked.k, asked.batch)
    table.check(len(app.hosts))
    options = asked.measured.over(app, ProbeOptions(duration_s=asked.duration))
    run = partial(run_retrieval, app.transport, app.hosts, options, note, table)
    result = measure(app, "bench retrieval", run, force=asked.measured.force)
    text = retrieval_table(result.measurements, terminal_width()) if result.measurements else ""
    conclude(app, "bench-retrieval", retrieval_document(result), text, result.findings)


def _read_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError(f"{text!r} has an empty name; write ddp,fsdp2")
    return names


@option_group
class _Running:
    batch: int | None = option("--batch", "Samples in a micro-batch on each rank.", type=click.IntRange(1, 2**20))
    accumulation: int | None = option("--accumulation", "Micro-batches in one step.", type=click.IntRange(1, 2**16))
    steps: int | None = option(
        "--steps", "Steps of one run.  Default: as many as take 10 s in each run.", type=click.IntRange(2, 10**6)
    )
    repetitions: int | None = option(
        "--repetitions", "Runs of each row, in turns; a verdict needs 5.  Default: 5.", type=click.IntRange(1, 100)
    )
    port: int | None = option(
        "--port", "Port at which the ranks meet.  Default: any free port.", type=click.IntRange(1, 65535)
    )
    interface: str | None = option("--interface", "The network to use.  Default: that of the host's address.")
    force: bool = option("--force", FORCE_HELP)
    arguments: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)


@option_group
class _Scaling:
    workload: str = option("--workload", "Whose program.", type=OneOf(WORKLOADS), default=WORKLOADS[0])
    devices: tuple[int, ...] | None = option(
        "--devices",
        "Numbers of devices, over all hosts.  Default: 1 to all.",
        type=Read(read_counts, "counts"),
        metavar="N[,N…]",
    )
    parallel: tuple[str, ...] = option(
        "--parallel", "Ways in which the program shares out its model.", type=Read(_read_names, "names"), default="ddp"
    )
    running: _Running


# of steps that count, in all runs of a row
_ROW_S = 10.0


@bench.command()
@takes(_Scaling)
@include_cordoned_option
@click.pass_obj
def scaling(app: App, asked: _Scaling) -> None:
    """Train a workload over 1 to all devices, at an equal batch a device: throughput, memory, speed-up, efficiency.

    Article 3's table by resnet50, article 4's by llm, whose own rows with their batches follow. On GPUs the article's
    preset is trained, without them a small model. ARGUMENTS behind `--` go to the program, after all others.
    """
    _measure(app, SCALING, asked.running, asked.workload, asked.parallel, asked.devices or ())


@bench.command()
@takes(_Running)
@include_cordoned_option
@click.pass_obj
def modes(app: App, running: _Running) -> None:
    """Train article 0's transformer on one device, by DataParallel, by DDP, and by DDP in mixed precision.

    DataParallel has the devices of the first host, DDP those of all. ARGUMENTS behind `--` go to the program, after all
    others.
    """
    _measure(app, MODES, running, "transformer")


def _measure(
    app: App,
    command: str,
    running: _Running,
    program: str,
    parallel: tuple[str, ...] = (),
    devices: tuple[int, ...] = (),
) -> None:
    has_steps = running.steps or any(word.partition("=")[0] == "--steps" for word in running.arguments)
    repetitions = running.repetitions or PROBE.usual.repetitions
    seconds = None if has_steps else _ROW_S / repetitions
    wish = Wish(
        program, parallel, devices, running.batch, running.accumulation, running.steps, seconds, running.arguments
    )
    options = WorkloadOptions(
        repetitions=repetitions,
        port=running.port,
        interface=running.interface,
        forks=app.forks,
        program=program,
    )
    with hold(app, command, force=running.force) as holds:
        runs = Runs()
        if not holds.refused:
            runs = run_plan(app.transport, app.hosts, options, note, plan_for(command, wish))
    keep(app, runs.result, None)
    rows = rows_of(runs, command, wish.program, judge_all)
    findings = (*holds.findings, *runs.result.findings)
    text = scaling_table(runs, rows, terminal_width()) if rows else ""
    conclude(app, command.replace(" ", "-"), scaling_document(runs, rows), text, findings)

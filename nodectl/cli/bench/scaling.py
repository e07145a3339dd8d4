"""Shipped workloads over one to many devices, and in the article's modes."""

from __future__ import annotations

from dataclasses import dataclass

import click

from nodectl.cli.app import App
from nodectl.cli.bench.shared import csv_option, finish, read_counts
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.measuring import hold, keep
from nodectl.cli.options import WORKLOADS, OneOf, Read, force_option, gathered
from nodectl.cli.terminal import note, terminal_width


@dataclass(frozen=True, slots=True)
class _Running:
    """The options of both commands."""

    batch: int | None
    accumulation: int | None
    steps: int | None
    repetitions: int | None
    port: int | None
    interface: str | None
    force: bool
    arguments: tuple[str, ...]


_running = gathered(
    _Running,
    click.option("--batch", type=click.IntRange(1, 2**20), help="Samples in a micro-batch on each rank."),
    click.option("--accumulation", type=click.IntRange(1, 2**16), help="Micro-batches in one step."),
    click.option(
        "--steps", type=click.IntRange(2, 10**6), help="Steps of one run.  Default: as many as take 10 s in each run."
    ),
    click.option(
        "--repetitions", type=click.IntRange(1, 100), help="Runs of each row, in turns; a verdict needs 5.  Default: 5."
    ),
    click.option(
        "--port", type=click.IntRange(1, 65535), help="Port at which the ranks meet.  Default: any free port."
    ),
    click.option("--interface", help="The network to use.  Default: that of the host's address."),
    force_option,
    include_cordoned_option,
    csv_option,
    click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
)


# of steps that count, in all runs of a row
_ROW_S = 10.0


def _names_steps(arguments: tuple[str, ...]) -> bool:
    return any(word.partition("=")[0] == "--steps" for word in arguments)


def _read_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names):
        raise ValueError(f"{text!r} has an empty name; write ddp,fsdp2")
    return names


@click.command()
@click.option("--workload", type=OneOf(WORKLOADS), default=WORKLOADS[0], show_default=True, help="Whose program.")
@click.option(
    "--devices",
    type=Read(read_counts, "counts"),
    metavar="N[,N…]",
    help="Numbers of devices, over all hosts.  Default: 1 to all.",
)
@click.option(
    "--parallel",
    type=Read(_read_names, "names"),
    default="ddp",
    show_default=True,
    help="Ways in which the program shares out its model.",
)
@_running
@click.pass_obj
def scaling(
    app: App, running: _Running, workload: str, devices: tuple[int, ...] | None, parallel: tuple[str, ...]
) -> None:
    """Train a workload over 1 to all devices, at an equal batch a device: throughput, memory, speed-up, efficiency.

    Article 3's table by resnet50, article 4's by llm, whose own rows with their batches follow. On GPUs the article's
    preset is trained, without them a small model. ARGUMENTS behind `--` go to the program, after all others.
    """
    from nodectl.articles.scaling import SCALING

    _measure(app, SCALING, running, workload, parallel, devices or ())


@click.command()
@_running
@click.pass_obj
def modes(app: App, running: _Running) -> None:
    """Train article 0's transformer on one device, by DataParallel, by DDP, and by DDP in mixed precision.

    DataParallel has the devices of the first host, DDP those of all. ARGUMENTS behind `--` go to the program, after all
    others.
    """
    from nodectl.articles.scaling import MODES

    _measure(app, MODES, running, "transformer")


def _measure(
    app: App,
    command: str,
    running: _Running,
    program: str,
    parallel: tuple[str, ...] = (),
    devices: tuple[int, ...] = (),
) -> None:
    from nodectl.articles.programs import Runs, WorkloadOptions, run_plan
    from nodectl.articles.scaling import Wish, plan_for, rows_of, unmeasured
    from nodectl.articles.scaling_document import scaling_document, scaling_lines, scaling_table
    from nodectl.trials.families import judge_all

    wish = Wish(program, parallel, devices, running.batch, running.accumulation, running.steps, running.arguments)
    options = WorkloadOptions(
        repetitions=running.repetitions,
        port=running.port,
        interface=running.interface,
        forks=app.forks,
        program=program,
        row_s=0.0 if running.steps or _names_steps(running.arguments) else _ROW_S,
    )
    with hold(app, command, force=running.force) as holds:
        runs = Runs()
        if not holds.refused:
            runs = run_plan(app.transport, app.hosts, options, note, plan_for(command, wish))
    keep(app, runs.result, None)
    rows = rows_of(runs, command, wish.program, judge_all)
    findings = (*holds.findings, *runs.result.findings)
    silent = unmeasured(rows, command, program)
    text = scaling_table(runs, rows, terminal_width(), silent) if rows else ""
    document = scaling_document(runs, rows)
    finish(app, command.replace(" ", "-"), document, text, scaling_lines(rows), findings)

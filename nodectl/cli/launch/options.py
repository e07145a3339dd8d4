"""Options of a launch by subject."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nodectl.cli.options import EXISTING_FOLDER, EXISTING_PATH, OneOf, Seconds, argument, option, option_group
from nodectl.jobs.engines import NAMES, TORCHRUN
from nodectl.jobs.plan import (
    CODE_LIMIT_MIB,
    LEASE_S,
    NIC_BINDINGS,
    TRACERS,
)


def _typed_alone(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the value; UsageError if a nodectl.toml gives it, which may be part of the project."""
    if value and ctx.get_parameter_source(str(param.name)) is not ParameterSource.COMMANDLINE:
        raise click.UsageError(f"{param.opts[0]} is taken from the command line alone", ctx)
    return value


@option_group
class Limits:
    """How many ranks there are, and what ends the job."""

    nproc_per_node: int | None = option(
        "--nproc-per-node", "Ranks on each host.  Default: one a GPU, else one.", type=click.IntRange(1, 1024)
    )
    lease: float = option("--lease", "End the job when a host is silent for this time.", default=LEASE_S, metavar="S")
    time_limit: float | None = option(
        "--time-limit", "End the job after this time: 4h, 90m.", type=Seconds(1), metavar="TIME"
    )


@option_group
class Code:
    """The program that runs: a script, a module or another engine's words; copied, or on the hosts."""

    code_folder: Path | None = option(
        "--code",
        "Folder that is copied.  Default: SCRIPT's git repository, else SCRIPT alone.",
        type=EXISTING_FOLDER,
        metavar="DIR",
    )
    include: tuple[Path, ...] = option(
        "--include",
        "Copy this file or folder of the project although it is ignored or hidden; never a secret.",
        type=EXISTING_PATH,
        multiple=True,
        callback=_typed_alone,
        metavar="PATH",
    )
    code_limit: int = option(
        "--code-limit",
        "Largest total size of what is copied.",
        default=CODE_LIMIT_MIB,
        type=click.IntRange(1),
        metavar="MIB",
    )
    chdir: str | None = option("--chdir", "Run the code in this folder of the hosts; nothing is copied.", metavar="DIR")
    module: str | None = option("-m --module", "Start a Python module, as `python -m` does.", metavar="MODULE")
    engine: str = option(
        "--engine",
        "Program that starts the ranks; all but torchrun take `-- ARGV`; `command` runs ARGV once a rank.",
        default=TORCHRUN,
        type=OneOf(NAMES),
    )
    checkpoint: str | None = option(
        "--checkpoint", "Folder on the nodes, or `auto`; NODECTL_CHECKPOINT_DIR there.", metavar="DIR"
    )
    script: str | None = argument(required=False)
    args: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)


@option_group
class Environment:
    """The surroundings of each rank: its Python, container, variables, CPUs and NICs."""

    names: tuple[str, ...] = option("--env", "Pass a variable of your environment to the job.", metavar="NAME")
    env_file: Path | None = option(
        "--env-file",
        "File of NAME=VALUE lines for the job, mode 0600.",
        type=click.Path(path_type=Path),
        metavar="FILE",
    )
    venv: str | None = option(
        "--venv",
        "Environment that holds torchrun, a venv or a conda prefix.  Default: the inventory's pytorch_venv.",
        metavar="DIR",
    )
    container: str | None = option(
        "--container", "Run in a container of this image, with the hosts' network, GPUs and RDMA.", metavar="IMAGE"
    )
    nic_binding: str = option(
        "--nic-binding",
        "host: NCCL uses each host's NICs for training.",
        default=NIC_BINDINGS[0],
        type=OneOf(NIC_BINDINGS),
    )


@option_group
class Hosts:
    """The hosts that run ranks, their order, and what they must be or have."""

    nodes: str | None = option(
        "--nodes",
        "Number of hosts that run ranks; the others are spares.",
        metavar="N|MIN:MAX",
    )
    restarts: int | None = option(
        "--restarts",
        "Number of new attempts after a failure.  Default: 0.",
        type=click.IntRange(0, 1000),
        metavar="N",
    )
    spares: int | None = option(
        "--spares", "Number of hosts that wait to take a failed host's place.", type=click.IntRange(0), metavar="K"
    )
    interface: str | None = option(
        "--interface", "Interface of the job: eth1, or the one in 10.1.0.0/16 on each host.", metavar="NAME|NETWORK"
    )
    needs: tuple[str, ...] = option("--need", "Path that every host must have before the start.", metavar="PATH")
    skips: tuple[str, ...] = option(
        "--skip",
        "Start even if this check of preflight fails.",
        metavar="CHECK",
    )


@option_group
class Launch:
    """All options of the command."""

    limits: Limits
    code: Code
    around: Environment
    hosts: Hosts
    trace: str | None = option(
        "--trace",
        "Profile some steps of each rank; a table shows compute, communication, overlap and idle.",
        type=OneOf(TRACERS),
    )
    detach: bool = option("--detach", "Print the job's id and return.")
    dry_run: bool = option("--dry-run", "Print the plan and start nothing.")


class LaunchCommand(click.Command):
    """Says where `--` belongs, for options that were meant for the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; name `--` for an option that nodectl does not have."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "the program's own options stand behind `--`: nodectl launch SCRIPT -- OPTIONS"
            raise click.UsageError(f"{error.format_message()}\n  try: {hint}", ctx) from error

"""`nodectl export`: Write a job as another launcher takes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import click

from nodectl.cli.app import App
from nodectl.cli.options import OneOf, argument, option, option_group, takes
from nodectl.cli.terminal import note
from nodectl.common import node_paths
from nodectl.errors import UsageError
from nodectl.jobs.export import FORMS, Node, SbatchJob
from nodectl.jobs.export import hostfile as text_of
from nodectl.jobs.plan import check_interface, one_venv
from nodectl.model.host import Host
from nodectl.profiles.host import hardware_of, of_host


@click.group()
def export() -> None:
    """Write a job as another launcher takes it: the site's engine starts, follows and ends it.

    GPUs and NCCL's variables are those of the profiles that the inventory's hosts name.
    """


@option_group
class _Sbatch:
    nodes: int | None = option(
        "--nodes",
        "Number of nodes, which Slurm chooses.  Default: the hosts by name.",
        type=click.IntRange(1),
        metavar="N",
    )
    nproc_per_node: int | None = option(
        "--nproc-per-node", "Ranks a node.  Default: one a GPU, else one.", type=click.IntRange(1, 1024)
    )
    options: tuple[str, ...] = option("--sbatch", "As --sbatch=--partition=gpu.", metavar="OPTION")
    interface: str = option(
        "--interface", "Interface of the job: eth1, or the one in 10.1.0.0/16.", default="", metavar="NAME|NETWORK"
    )
    launcher: str = option(
        "--launcher", "Path of the launch script on the nodes.", default=node_paths.LAUNCHER, metavar="PATH"
    )
    venv: str | None = option(
        "--venv", "Environment that holds torchrun.  Default: the inventory's pytorch_venv.", metavar="DIR"
    )
    script: str = argument()
    args: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)


@export.command()
@takes(_Sbatch)
@click.pass_obj
def sbatch(app: App, asked: _Sbatch) -> None:
    """Print a batch script for `sbatch`; SCRIPT is named from the folder where that will be called."""
    hosts = app.hosts
    gpus = _gpus_a_host(app, hosts)
    script = f"./{asked.script}" if asked.script.startswith("-") else asked.script  # an option to no launcher
    job = SbatchJob(
        name=PurePosixPath(asked.script).stem,
        nodes=asked.nodes or len(hosts),
        hosts=() if asked.nodes else [host.name for host in hosts],
        nproc_per_node=asked.nproc_per_node or gpus or 1,
        gpus=gpus,
        program=(script, *asked.args),
        asked=asked.options,
        launcher=asked.launcher,
        venv=one_venv(hosts, asked.launcher, asked.venv),
        network=check_interface(asked.interface or None) or "",
        env=_common_nccl_env(app, hosts),
    )
    _show(app, "sbatch", job.script_text())


@option_group
class _Hostfile:
    form: str = option("--format", "Whose hostfile.", type=OneOf(tuple(FORMS)), default="deepspeed")
    slots: int | None = option("--slots", "Ranks a host.  Default: its GPUs, else one.", type=click.IntRange(1, 1024))
    names: bool = option("--names", "Write the inventory's host names instead of addresses.")


@export.command()
@takes(_Hostfile)
@click.pass_obj
def hostfile(app: App, asked: _Hostfile) -> None:
    """Print the hosts as DeepSpeed, Open MPI or MPICH reads them; for torchrun, what is to be run on each."""
    nodes = [
        Node(host.name if asked.names else host.address, asked.slots or _gpus_a_host(app, [host]) or 1)
        for host in app.hosts
    ]
    _show(app, "hostfile", text_of(nodes, asked.form))


def _gpus_a_host(app: App, hosts: Sequence[Host]) -> int:
    counts = {hardware_of(host, app.profile_dirs).gpus or 0 for host in hosts}
    if len(counts) > 1:
        raise UsageError(
            f"the hosts have different numbers of GPUs: {sorted(counts)}", "leave the odd hosts out with --limit"
        )
    return counts.pop()


def _common_nccl_env(app: App, hosts: Sequence[Host]) -> dict[str, str]:
    resolved = [of_host(host, extra_dirs=app.profile_dirs) for host in hosts]
    envs = [one.nccl_env for one in resolved if one is not None]
    names = sorted({name for env in envs for name in env})
    differ = [name for name in names if len({env.get(name) for env in envs}) > 1]
    if differ:
        note(f"left out, as the hosts have different values: {', '.join(differ)}")
    return {name: envs[0][name] for name in names if name not in differ}


def _show(app: App, target: str, text: str) -> None:
    app.show("export", {"target": target, "text": text}, text.rstrip("\n"))

"""`nodectl export`: Write a job as another launcher takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.options import OneOf
from nodectl.cli.slurm import gpus_a_host
from nodectl.cli.terminal import note
from nodectl.common import node_paths
from nodectl.errors import UsageError

if TYPE_CHECKING:
    from nodectl.model.host import Host
    from nodectl.profiles.resolve import Resolved

_RDMA_RESOURCE = "rdma/hca_shared_devices_a"
_FORMS = ("deepspeed", "openmpi", "mpich", "torchrun")
_KINDS = ("jobset", "pytorchjob")
_RESOURCE = re.compile(r"([a-z0-9.-]+/[A-Za-z0-9._-]+)(?:=([1-9][0-9]{0,5}))?")
_QUANTITY = re.compile(r"[1-9][0-9]*(Ki|Mi|Gi|Ti|k|M|G|T)?")


@click.group()
def export() -> None:
    """Write a job as another launcher takes it: the site's engine starts, follows and ends it.

    GPUs and NCCL's variables are those of the profiles that the inventory's hosts name.
    """


@export.command()
@click.option(
    "--nodes",
    type=click.IntRange(1),
    metavar="N",
    help="Number of nodes, which Slurm chooses.  Default: the hosts by name.",
)
@click.option("--nproc-per-node", type=click.IntRange(1, 1024), help="Ranks a node.  Default: one a GPU, else one.")
@click.option("--sbatch", "options", multiple=True, metavar="OPTION", help="As --sbatch=--partition=gpu.")
@click.option(
    "--interface", default="", metavar="NAME|NETWORK", help="Interface of the job: eth1, or the one in 10.1.0.0/16."
)
@click.option(
    "--launcher",
    default=node_paths.LAUNCHER,
    show_default=True,
    metavar="PATH",
    help="Path of the launch script on the nodes.",
)
@click.option("--venv", metavar="DIR", help="Environment that holds torchrun.  Default: the inventory's pytorch_venv.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def slurm(
    app: App,
    nodes: int | None,
    nproc_per_node: int | None,
    options: tuple[str, ...],
    interface: str,
    launcher: str,
    venv: str | None,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Print a batch script for `sbatch`; SCRIPT is named from the folder where that will be called."""
    from nodectl.export.kubernetes import script_path
    from nodectl.export.sbatch import SbatchJob
    from nodectl.jobs.plan import check_interface, one_venv

    hosts = app.hosts
    gpus = gpus_a_host(app, hosts)
    job = SbatchJob(
        name=PurePosixPath(script).stem,
        nodes=nodes or len(hosts),
        hosts=() if nodes else [host.name for host in hosts],
        nproc_per_node=nproc_per_node or gpus or 1,
        gpus=gpus,
        program=(script_path(script), *args),
        asked=options,
        launcher=launcher,
        venv=one_venv(hosts, launcher, venv),
        network=check_interface(interface or None) or "",
        env=_nccl_env(_wanted(app, hosts)),
    )
    _show(app, "slurm", job.script_text())


@export.command()
@click.option("--format", "form", type=OneOf(_FORMS), default="deepspeed", show_default=True, help="Whose hostfile.")
@click.option("--slots", type=click.IntRange(1, 1024), help="Ranks a host.  Default: its GPUs, else one.")
@click.option("--names", is_flag=True, help="Write the inventory's host names instead of addresses.")
@click.pass_obj
def hostfile(app: App, form: str, slots: int | None, names: bool) -> None:
    """Print the hosts as DeepSpeed, Open MPI or MPICH reads them; for torchrun, what is to be run on each."""
    from nodectl.export.hostfile import Node
    from nodectl.export.hostfile import hostfile as text_of

    nodes = [Node(host.name if names else host.address, slots or gpus_a_host(app, [host]) or 1) for host in app.hosts]
    _show(app, "hostfile", text_of(nodes, form))


@export.command()
@click.option(
    "--kind", type=OneOf(_KINDS), default="jobset", show_default=True, help="The operator that the cluster has."
)
@click.option("--image", required=True, metavar="IMAGE", help="Container image that holds torchrun and the script.")
@click.option("--name", metavar="NAME", help="Name of the job.  Default: the script's name.")
@click.option("--namespace", default="", metavar="NAME")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Number of pods.  Default: the number of hosts.")
@click.option(
    "--gpus", type=click.IntRange(0, 64), metavar="N", help="GPUs of each pod.  Default: those of the hardware profile."
)
@click.option("--nproc-per-node", type=click.IntRange(1, 1024), help="Ranks a pod.  Default: one a GPU, else one.")
@click.option(
    "--rdma-resource",
    "rdma",
    multiple=True,
    metavar="NAME[=COUNT]",
    help=f"Resource that gives a pod RDMA; `none`: no RDMA.  Default: {_RDMA_RESOURCE}=1 where the profile has RDMA.",
)
@click.option(
    "--shm", default="", metavar="SIZE", help="Size of /dev/shm, such as 64Gi.  Default: half the node's memory."
)
@click.option("--host-network", is_flag=True, help="Use the nodes' own network, with the names of their interfaces.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def kubernetes(
    app: App,
    kind: str,
    image: str,
    name: str | None,
    namespace: str,
    nodes: int | None,
    gpus: int | None,
    nproc_per_node: int | None,
    rdma: tuple[str, ...],
    shm: str,
    host_network: bool,
    script: str,
    args: tuple[str, ...],
) -> None:
    """Print a JobSet or a PyTorchJob for `kubectl apply -f -`; SCRIPT is a path in the image."""
    from nodectl.export.kubernetes import KubernetesJob, job_name, manifest

    if shm and not _QUANTITY.fullmatch(shm):
        raise click.UsageError(f"--shm {shm!r}: no quantity such as 64Gi")
    hosts = app.hosts
    wanted = _wanted(app, hosts)
    count = gpus_a_host(app, hosts) if gpus is None else gpus
    job = KubernetesJob(
        name=name if name is not None else job_name(script),
        namespace=namespace,
        image=image,
        nodes=nodes or len(hosts),
        gpus=count,
        ranks=nproc_per_node or count or 1,
        rdma=_rdma(rdma, wanted),
        shm=shm,
        host_network=host_network,
        env=_nccl_env(wanted, of_hosts=host_network),
        script=script,
        args=args,
    )
    _show(app, "kubernetes", manifest(job, kind))


def _wanted(app: App, hosts: Sequence[Host]) -> list[Resolved]:
    """Return what the hosts should be, of those whose variables name profiles."""
    from nodectl.profiles.host import of_host

    resolved = [of_host(host, extra_dirs=app.profile_dirs) for host in hosts]
    return [one for one in resolved if one is not None]


def _nccl_env(wanted: Sequence[Resolved], *, of_hosts: bool = True) -> dict[str, str]:
    """NCCL's variables that are alike on all hosts; `of_hosts`: those that name a host's interfaces, too."""
    from nodectl.profiles.nccl import is_host_variable

    envs = [one.nccl_env for one in wanted]
    names = sorted({name for env in envs for name in env})
    differ = [name for name in names if len({env.get(name) for env in envs}) > 1]
    own = [] if of_hosts else [name for name in names if is_host_variable(name)]
    if differ:
        note(f"left out, as the hosts have different values: {', '.join(differ)}")
    if own:
        note(f"left out, as a pod's interfaces have other names (--host-network keeps them): {', '.join(own)}")
    return {name: envs[0][name] for name in names if name not in (*differ, *own)}


def _rdma(asked: Sequence[str], wanted: Sequence[Resolved]) -> Mapping[str, int]:
    if not asked:
        has = any(nic.kind in ("infiniband", "roce") for one in wanted for nic in one.hardware.nics)
        return {_RDMA_RESOURCE: 1} if has else {}
    counts = {}
    for text in asked:
        match = _RESOURCE.fullmatch(text)
        if text == "none":
            continue
        if match is None:
            raise UsageError(f"--rdma-resource {text!r}: write {_RDMA_RESOURCE}=1", "see `kubectl describe node`")
        counts[match[1]] = int(match[2] or 1)
    return counts


def _show(app: App, target: str, text: str) -> None:
    app.show("export", {"target": target, "text": text}, text.rstrip("\n"))

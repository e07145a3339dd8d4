"""`nodectl export`: Write a job as another launcher takes it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import click

from nodectl.cli.app import App
from nodectl.cli.options import OneOf, argument, option, option_group, takes
from nodectl.cli.terminal import note
from nodectl.common import node_paths
from nodectl.errors import UsageError
from nodectl.jobs.export.hostfile import Node
from nodectl.jobs.export.hostfile import hostfile as text_of
from nodectl.jobs.export.kubernetes import KubernetesJob, acceptance, job_name, manifest, script_path
from nodectl.jobs.export.sbatch import SbatchJob
from nodectl.jobs.plan import check_interface, one_venv
from nodectl.model.host import Host
from nodectl.profiles.host import hardware_of, of_host
from nodectl.profiles.nccl import is_host_variable
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
    gpus = gpus_a_host(app, hosts)
    job = SbatchJob(
        name=PurePosixPath(asked.script).stem,
        nodes=asked.nodes or len(hosts),
        hosts=() if asked.nodes else [host.name for host in hosts],
        nproc_per_node=asked.nproc_per_node or gpus or 1,
        gpus=gpus,
        program=(script_path(asked.script), *asked.args),
        asked=asked.options,
        launcher=asked.launcher,
        venv=one_venv(hosts, asked.launcher, asked.venv),
        network=check_interface(asked.interface or None) or "",
        env=_nccl_env(_wanted(app, hosts)),
    )
    _show(app, "sbatch", job.script_text())


@option_group
class _Hostfile:
    form: str = option("--format", "Whose hostfile.", type=OneOf(_FORMS), default="deepspeed")
    slots: int | None = option("--slots", "Ranks a host.  Default: its GPUs, else one.", type=click.IntRange(1, 1024))
    names: bool = option("--names", "Write the inventory's host names instead of addresses.")


@export.command()
@takes(_Hostfile)
@click.pass_obj
def hostfile(app: App, asked: _Hostfile) -> None:
    """Print the hosts as DeepSpeed, Open MPI or MPICH reads them; for torchrun, what is to be run on each."""
    nodes = [
        Node(host.name if asked.names else host.address, asked.slots or gpus_a_host(app, [host]) or 1)
        for host in app.hosts
    ]
    _show(app, "hostfile", text_of(nodes, asked.form))


@option_group
class _Kubernetes:
    kind: str = option("--kind", "The operator that the cluster has.", type=OneOf(_KINDS), default="jobset")
    image: str = option(
        "--image", "Container image that holds torchrun and the script.", required=True, metavar="IMAGE"
    )
    name: str | None = option("--name", "Name of the job.  Default: the script's name.", metavar="NAME")
    namespace: str = option("--namespace", None, default="", metavar="NAME")
    nodes: int | None = option(
        "--nodes", "Number of pods.  Default: the number of hosts.", type=click.IntRange(1), metavar="N"
    )
    gpus: int | None = option(
        "--gpus", "GPUs of each pod.  Default: those of the hardware profile.", type=click.IntRange(0, 64), metavar="N"
    )
    nproc_per_node: int | None = option(
        "--nproc-per-node", "Ranks a pod.  Default: one a GPU, else one.", type=click.IntRange(1, 1024)
    )
    rdma: tuple[str, ...] = option(
        "--rdma-resource",
        f"Resource that gives a pod RDMA; `none`: no RDMA.  Default: {_RDMA_RESOURCE}=1 where the profile has RDMA.",
        metavar="NAME[=COUNT]",
    )
    shm: str = option(
        "--shm", "Size of /dev/shm, such as 64Gi.  Default: half the node's memory.", default="", metavar="SIZE"
    )
    host_network: bool = option("--host-network", "Use the nodes' own network, with the names of their interfaces.")
    script: str = argument()
    args: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)


@export.command()
@takes(_Kubernetes)
@click.pass_obj
def kubernetes(app: App, asked: _Kubernetes) -> None:
    """Print a JobSet or a PyTorchJob for `kubectl apply -f -`; SCRIPT is a path in the image."""
    if asked.shm and not _QUANTITY.fullmatch(asked.shm):
        raise click.UsageError(f"--shm {asked.shm!r}: no quantity such as 64Gi")
    hosts = app.hosts
    wanted = _wanted(app, hosts)
    count = gpus_a_host(app, hosts) if asked.gpus is None else asked.gpus
    job = KubernetesJob(
        name=asked.name if asked.name is not None else job_name(asked.script),
        namespace=asked.namespace,
        image=asked.image,
        nodes=asked.nodes or len(hosts),
        gpus=count,
        ranks=asked.nproc_per_node or count or 1,
        rdma=_rdma(asked.rdma, wanted),
        shm=asked.shm,
        host_network=asked.host_network,
        env=_nccl_env(wanted, of_hosts=asked.host_network),
        script=asked.script,
        args=asked.args,
    )
    _show(app, "kubernetes", manifest(job, asked.kind))


@export.command("accept")
@click.option("--image", help="Container image that holds nodectl.", required=True, metavar="IMAGE")
@click.option("--namespace", default="", metavar="NAME")
@click.option("--level", help="As of `nodectl accept`.", type=OneOf(["quick", "standard", "burn-in"]), default="quick")
@click.pass_obj
def accept_job(app: App, image: str, namespace: str, level: str) -> None:
    """Print a Job for `kubectl apply -f -`: on each host's node a pod that has its GPUs and accepts it.

    A pod fails where its node is rejected (exit status 1) or cannot be told (3), and its status says why.
    """
    names, gpus = [host.name for host in app.hosts], gpus_a_host(app, app.hosts)
    kinds = {str(host.variables.get("nodectl_hardware", "auto")) for host in app.hosts}
    if len(kinds) > 1:
        raise UsageError(f"the hosts have different hardware: {', '.join(sorted(kinds))}", "choose some with --limit")
    own = json.dumps({"nodectl_hardware": kinds.pop(), "nodectl_stack": "none", "nodectl_tuning": "stock"})
    args = ["-e", own, "accept", "--level", level]
    job = KubernetesJob("nodectl-accept", image, len(names), 1, "", gpus, args, namespace)
    _show(app, "accept", acceptance(job, names))


def gpus_a_host(app: App, hosts: Sequence[Host]) -> int:
    """Return the GPUs of each host, as their hardware profile has it; 0 where it counts none."""
    counts = {hardware_of(host, app.profile_dirs).gpus or 0 for host in hosts}
    if len(counts) > 1:
        raise UsageError(
            f"the hosts have different numbers of GPUs: {sorted(counts)}", "leave the odd hosts out with --limit"
        )
    return counts.pop()


def _wanted(app: App, hosts: Sequence[Host]) -> list[Resolved]:
    """Return what the hosts should be, of those whose variables name profiles."""
    resolved = [of_host(host, extra_dirs=app.profile_dirs) for host in hosts]
    return [one for one in resolved if one is not None]


def _nccl_env(wanted: Sequence[Resolved], *, of_hosts: bool = True) -> dict[str, str]:
    """NCCL's variables that are alike on all hosts; `of_hosts`: those that name a host's interfaces, too."""
    envs = [one.nccl_env for one in wanted]
    names = sorted({name for env in envs for name in env})
    differ = [name for name in names if len({env.get(name) for env in envs}) > 1]
    interfaces = [] if of_hosts else [name for name in names if is_host_variable(name)]
    if differ:
        note(f"left out, as the hosts have different values: {', '.join(differ)}")
    if interfaces:
        note(f"left out, as a pod's interfaces have other names (--host-network keeps them): {', '.join(interfaces)}")
    return {name: envs[0][name] for name in names if name not in (*differ, *interfaces)}


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

"""From the operator's request and what preflight saw to a plan; nothing is started here."""

from __future__ import annotations

import getpass
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.common import node_paths
from nodectl.errors import UsageError
from nodectl.jobs.plan import CheckpointPlan, Plan, PlanHost, beat_s, check_lease, choose_nproc, choose_ports
from nodectl.jobs.start import survey_checkpoints
from nodectl.model.host import Host
from nodectl.transport.base import Transport


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What the operator asked for; `checkpoint` is an absolute folder, `auto`, or None."""

    script: str
    args: tuple[str, ...]
    nproc_per_node: int | None
    lease_s: float
    launcher: str
    venv: str
    env_names: tuple[str, ...]
    checkpoint: str | None = None

    def checkpoint_folder(self) -> str | None:
        """As jobctl takes it: an absolute path, or `state:NAME` for nodectl's own folder on each node."""
        if self.checkpoint is None or self.checkpoint.startswith("/"):
            return self.checkpoint
        if self.checkpoint != "auto":
            raise UsageError(
                f"--checkpoint {self.checkpoint}: not an absolute path on the nodes",
                "say /a/folder/on/the/nodes, or `auto` for a folder of nodectl's own",
            )
        stem = self.script.rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()
        return "state:" + (re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:60] or "checkpoints")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What preflight found: by host in rank order address, interface and GPUs; and the ports that all have free."""

    hosts: tuple[PlanHost, ...]
    gpu_counts: tuple[int, ...]
    free_ports: tuple[int, ...]


def make_plan(
    job_id: str, request: LaunchRequest, surroundings: Surroundings, checkpoint: CheckpointPlan | None
) -> Plan:
    """The plan; JobError where request and surroundings do not fit together."""
    master_port, heartbeat_port = choose_ports(surroundings.free_ports)
    return Plan(
        id=job_id,
        created_at=time.time(),
        operator=f"{getpass.getuser()}@{socket.gethostname()}",
        hosts=surroundings.hosts,
        nproc_per_node=choose_nproc(request.nproc_per_node, surroundings.gpu_counts),
        script=request.script,
        args=request.args,
        env_names=request.env_names,
        master_port=master_port,
        heartbeat_port=heartbeat_port,
        lease_s=check_lease(request.lease_s),
        launcher=request.launcher,
        venv=request.venv,
        checkpoint=checkpoint,
        beat_s=beat_s(len(surroundings.hosts)),
    )


def plan_checkpoints(
    transport: Transport, hosts: Sequence[Host], job_id: str, request: LaunchRequest, forks: int
) -> CheckpointPlan | None:
    """Where checkpoints lie and whether they must be copied; asks the hosts."""
    folder = request.checkpoint_folder()
    if folder is None:
        return None
    found = survey_checkpoints(transport, hosts, job_id, folder, forks)
    return CheckpointPlan(folder, "single", found.restore_from) if len(hosts) == 1 else found


def venv_of(variables: Mapping[str, object], launcher: str, asked: str | None) -> str:
    """The environment that holds torchrun: as asked, as the inventory says, else where the pytorch role puts it.

    Empty for a launcher of the operator's own, which brings what it needs.
    """
    if asked is not None or launcher != node_paths.LAUNCHER:
        return asked or ""
    return str(variables.get("pytorch_venv") or node_paths.VENV)

"""What a supervisor starts with: the launcher's command line, and its life apart from any session."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List

from .contain import MARKER
from .folder import JobFolder
from .nsinit import Command

_DROPPED_ENV = ("SSH_", "XDG_SESSION_", "NODECTL_")


def launcher_command(plan: Dict[str, Any], job: JobFolder, checkpoint_folder: str) -> Command:
    """The deployed launch script for this host, in the node's environment plus what the operator gave."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED_ENV)}
    env.update(job.take_environment())
    env.update({MARKER: job.id, "NODECTL_JOB_DIR": job.path, "PYTHONUNBUFFERED": "1"})
    if checkpoint_folder:
        env["NODECTL_CHECKPOINT_DIR"] = checkpoint_folder
    return Command(launcher_argv(plan, job), env, job.at("code"), job.at("output.log"))


def launcher_argv(plan: Dict[str, Any], job: JobFolder) -> List[str]:
    """What the plan says for this host, as the deployed launch script's arguments."""
    host, master = plan["hosts"][plan["rank"]], plan["hosts"][0]
    argv = [plan["launcher"], "--nnodes", str(len(plan["hosts"])), "--node-rank", str(plan["rank"])]
    argv += ["--nproc-per-node", str(plan["nproc_per_node"])]
    argv += ["--master-addr", master["address"], "--master-port", str(plan["master_port"])]
    argv += ["--local-addr", host["address"]]
    argv += ["--interface", host["interface"]] if host.get("interface") else []
    argv += ["--log-dir", job.at("ranks"), "--job-id", job.id]
    argv += ["--venv", plan["venv"]] if plan.get("venv") else []
    return [*argv, "--", plan["script"], *plan["args"]]


def detach(body: Callable[[int], None]) -> str:
    """Run `body(pipe)` in a process that outlives this one and its session; what it wrote before closing the pipe."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        os.setsid()
        if os.fork() == 0:
            body(writer)
        os._exit(0)
    os.close(writer)
    os.wait()
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode(errors="replace")

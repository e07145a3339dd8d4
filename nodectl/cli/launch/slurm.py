"""A launch that Slurm carries out: the batch script is made here, submitted on the login host and followed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from nodectl.cli.app import App
from nodectl.cli.export import gpus_a_host
from nodectl.cli.jobs import conclude_by, follow_slurm, read_slurm, stop_slurm
from nodectl.cli.launch.options import Launch
from nodectl.cli.terminal import TO_LEAVE, note
from nodectl.errors import UsageError
from nodectl.jobs.engines import COMMAND, TORCHRUN
from nodectl.jobs.export.sbatch import SbatchJob
from nodectl.jobs.plan import Start, new_job_id, one_venv, slurm_nodes
from nodectl.jobs.seen import note_jobs
from nodectl.jobs.slurm.login import need_login
from nodectl.jobs.slurm.package import pack, plan_document
from nodectl.jobs.ways import Way

_CHANCE_S = 2.0


def launch_via_slurm(app: App, asked: Launch, way: Way, env: Mapping[str, str], network: str) -> int:
    """Submit the job and follow it; return the exit status of the launch."""
    job = _job(app, asked, way, new_job_id(), network)
    plan, script = plan_document(job, tuple(sorted(env)), way.code), job.script_text()
    if asked.dry_run:
        app.show("plan", {"plan": plan, "script": script}, script.rstrip("\n"))
        return 0
    login = need_login(app.slurm(submits=True))
    submitted = login.submit(job.id, pack(plan, script, way.code), env)
    note_jobs(app.fleet, [job.id], started=True)
    where = f"Slurm's job {submitted['slurm_id']}, submitted on {login.host.name}; its folder is {submitted['folder']}"
    note(f"job {job.id}: {where}")
    if asked.detach:
        app.show("jobs", {"jobs": [_submitted(job, int(submitted["slurm_id"]))]}, job.id)
        return 0
    note(f"{TO_LEAVE}: nodectl jobs logs -f {job.id}")
    return _follow(app, job.id)


def _job(app: App, asked: Launch, way: Way, job_id: str, network: str) -> SbatchJob:
    hosts, around, nodes = app.hosts, asked.around, slurm_nodes(asked.hosts.nodes)
    gpus = gpus_a_host(app, hosts)
    return SbatchJob(
        id=job_id,
        name=Path(way.script).stem,
        nodes=nodes or len(hosts),
        hosts=() if nodes else [host.name for host in hosts],
        nproc_per_node=asked.limits.nproc_per_node or (gpus if way.start.engine != COMMAND else 0) or 1,
        gpus=gpus,
        start=_start(way.start),
        program=(way.script, *way.args) if way.start.engine == TORCHRUN else way.start.argv,
        asked=asked.hosts.sbatch,
        time_limit_s=asked.limits.time_limit or 0.0,
        launcher=around.launcher,
        venv="" if way.start.conda else one_venv(hosts, around.launcher, around.venv),
        network=network,
        workdir=way.start.chdir or way.workdir,
        checkpoint_dir=_checkpoint(asked.code.checkpoint, way.name),
    )


def _checkpoint(asked: str | None, name: str) -> str:
    """Return the folder on the nodes, or the name of one beside the jobs' folders."""
    if asked is None or asked.startswith("/"):
        return asked or ""
    if asked != "auto":
        raise UsageError(
            f"--checkpoint {asked}: not an absolute path on the nodes", "say /a/folder/that/all/see, or `auto`"
        )
    return name


def _start(start: Start) -> tuple[str, ...]:
    """Return how the launch script is to start the ranks, in its own options."""
    options = {
        "--engine": "" if start.engine == TORCHRUN else start.engine,
        "--module": "yes" if start.module else "",
        "--conda": start.conda,
        "--numa-binding": start.numa_binding,
    }
    return tuple(word for option, value in options.items() if value for word in (option, value))


def _submitted(job: SbatchJob, slurm_id: int) -> dict[str, object]:
    return {
        "id": job.id,
        "state": "starting",
        "hosts": list(job.hosts),
        "exit_status": None,
        "first_failure": None,
        "slurm": {"id": slurm_id, "state": "PENDING", "reason": "", "nodes": job.nodes},
    }


def _follow(app: App, job_id: str) -> int:
    job = read_slurm(app, job_id).find(job_id)
    try:
        follow_slurm(app, job)
    except KeyboardInterrupt:
        note(f"stopping {job_id} in {_CHANCE_S:g} s; Ctrl-C again leaves it running")
        try:
            time.sleep(_CHANCE_S)
        except KeyboardInterrupt:
            note(f"the job goes on; see nodectl jobs logs -f {job_id}, nodectl jobs stop {job_id}")
            return 130
        stop_slurm(app, job_id)
    return conclude_by(app, lambda: read_slurm(app, job_id).find(job_id))

"""A launch that Slurm carries out: the batch script is made here, submitted on the login host and followed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nodectl.cli.app import App
from nodectl.cli.jobs import conclude_by, follow_slurm, read_slurm, stop_slurm
from nodectl.cli.terminal import TO_LEAVE, note
from nodectl.errors import UsageError
from nodectl.jobs.engines import COMMAND, TORCHRUN

if TYPE_CHECKING:
    from nodectl.export.sbatch import SbatchJob
    from nodectl.jobs.plan import Start
    from nodectl.jobs.ways import Way
    from nodectl.model.host import Host

_CHANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What the operator said on the command line."""

    way: Way
    nproc_per_node: int | None
    nodes: int | None
    sbatch_options: tuple[str, ...]
    checkpoint: str | None
    interface: str
    launcher: str
    venv: str | None
    time_limit_s: float


def launch_via_slurm(app: App, asked: Asked, env: Mapping[str, str], *, detach: bool, dry_run: bool) -> int:
    """Submit the job and follow it; the exit status of the launch."""
    from nodectl.jobs.plan import new_job_id
    from nodectl.jobs.seen import note_jobs
    from nodectl.jobs.slurm.login import need_login
    from nodectl.jobs.slurm.package import pack, plan_document

    job = _job(app, asked, new_job_id())
    plan, script = plan_document(job, tuple(sorted(env)), asked.way.code), job.script_text()
    if dry_run:
        app.show("plan", {"plan": plan, "script": script}, script.rstrip("\n"))
        return 0
    login = need_login(app.slurm(submits=True))
    submitted = login.submit(job.id, pack(plan, script, asked.way.code), env)
    note_jobs(app.fleet, [job.id], started=True)
    where = f"Slurm's job {submitted['slurm_id']}, submitted on {login.host.name}; its folder is {submitted['folder']}"
    note(f"job {job.id}: {where}")
    if detach:
        app.show("jobs", {"jobs": [_submitted(job, int(submitted["slurm_id"]))]}, job.id)
        return 0
    note(f"{TO_LEAVE}: nodectl jobs logs -f {job.id}")
    return _follow(app, job.id)


def _job(app: App, asked: Asked, job_id: str) -> SbatchJob:
    from nodectl.export.sbatch import SbatchJob
    from nodectl.jobs.plan import one_venv

    hosts, way = app.hosts, asked.way
    gpus = gpus_a_host(app, hosts)
    return SbatchJob(
        id=job_id,
        name=Path(way.script).stem,
        nodes=asked.nodes or len(hosts),
        hosts=() if asked.nodes else [host.name for host in hosts],
        nproc_per_node=asked.nproc_per_node or (gpus if way.start.engine != COMMAND else 0) or 1,
        gpus=gpus,
        start=_start(way.start),
        program=(way.script, *way.args) if way.start.engine == TORCHRUN else way.start.argv,
        asked=asked.sbatch_options,
        time_limit_s=asked.time_limit_s,
        launcher=asked.launcher,
        venv="" if way.start.conda else one_venv(hosts, asked.launcher, asked.venv),
        network=asked.interface,
        workdir=way.start.chdir or way.workdir,
        checkpoint_dir=_checkpoint(asked),
    )


def gpus_a_host(app: App, hosts: Sequence[Host]) -> int:
    """GPUs of each host, as their hardware profile has it; 0 without one."""
    from nodectl.profiles.host import hardware_of

    counts = {hardware.gpus or 0 if (hardware := hardware_of(host, app.profile_dirs)) else 0 for host in hosts}
    if len(counts) > 1:
        raise UsageError(
            f"the hosts have different numbers of GPUs: {sorted(counts)}", "leave the odd hosts out with --limit"
        )
    return counts.pop()


def _checkpoint(asked: Asked) -> str:
    """The folder on the nodes, or the name of one beside the jobs' folders."""
    if asked.checkpoint is None or asked.checkpoint.startswith("/"):
        return asked.checkpoint or ""
    if asked.checkpoint != "auto":
        raise UsageError(
            f"--checkpoint {asked.checkpoint}: not an absolute path on the nodes",
            "say /a/folder/that/all/see, or `auto`",
        )
    return asked.way.name


def _start(start: Start) -> tuple[str, ...]:
    """How the launch script is to start the ranks, in its own options."""
    words = {
        "--engine": "" if start.engine == TORCHRUN else start.engine,
        "--module": "yes" if start.module else "",
        "--conda": start.conda,
        "--numa-binding": start.numa_binding,
    }
    return tuple(word for option, value in words.items() if value for word in (option, value))


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

"""What a shell may ask of the jobs on a node: receive, start, list, stop, clean.

The answer is one frame with a list of rows; only `logs` answers in many.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tarfile
import time
from typing import Any, Callable, Dict, List, Optional

from ..common.frames import send
from . import checkpoints
from .contain import Containment
from .folder import JobFolder, JobFolderError, jobs_root, known_jobs, payload_folder, state_root
from .logs import stream
from .nsinit import redirect

_FRESH_S = 3600.0
_SUPERVISOR_S = 7.0  # grace for the ranks, then its parting words; the whole must stay below 10 s
_FORCE_S = 1.5
_POLL_S = 0.02
Row = Dict[str, Any]

_PLAN_KEYS = ("id", "created_at", "operator", "script", "args", "hosts", "nproc_per_node", "lease_s", "checkpoint")


def main(argv: List[str]) -> int:
    """Run one command; 1 with the reason on stderr where it failed."""
    commands: Dict[str, Callable[..., Optional[List[Row]]]] = {
        "receive": receive,
        "start": start,
        "discard": discard,
        "list": show,
        "stop": stop_job,
        "clean": clean,
        "survey": survey,
    }
    os.umask(0o077)
    try:
        if argv[0] == "logs":
            stream(*argv[1:])
        else:
            send(commands[argv[0]](*argv[1:]) or [])
    except BrokenPipeError:  # the operator has gone
        os._exit(1)
    except (JobFolderError, OSError, tarfile.TarError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def receive(job_id: str, rank: str) -> None:
    """Unpack a job's folder from stdin (tar.gz: plan.json, secret, env.json, code/), in one step or not at all."""
    job = JobFolder(job_id)
    if os.path.exists(job.path):
        raise JobFolderError(f"{job.path} is there already")
    partial = os.path.join(jobs_root(), f".{job.id}.partial")
    os.makedirs(partial, mode=0o700)
    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as archive:
            options: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(partial, **options)  # noqa: S202 - what the operator's own nodectl packed
        with open(os.path.join(partial, "rank"), "w", encoding="utf-8") as file:
            json.dump({"rank": int(rank)}, file)
        os.makedirs(os.path.join(partial, "ranks"), mode=0o700)
        os.rename(partial, job.path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def start(job_id: str) -> List[Row]:
    """Start the supervisor, detached; what it is, once it holds its port and its containment."""
    job = JobFolder(job_id)
    checkpoint = job.plan()["checkpoint"]
    if checkpoint is not None:
        checkpoints.clear_token(checkpoint["dir"], job.id)
    answer = json.loads(_detach(lambda pipe: _supervise(job, pipe)) or '{"error": "the supervisor died at its start"}')
    if "error" in answer:
        raise JobFolderError(answer["error"])
    return [answer]


def _supervise(job: JobFolder, pipe: int) -> None:
    from .supervisor import Supervisor  # half of the start-up of this program, of which the other commands have no use

    redirect(job.at("supervisor.log"))
    os.chdir(job.path)
    try:
        supervisor = Supervisor(job)
        supervisor.open()
    except Exception as error:  # whatever it is, the operator must learn of it
        os.write(pipe, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        raise
    os.write(pipe, json.dumps({"pid": os.getpid(), "containment": supervisor.containment.kind}).encode())
    os.close(pipe)
    supervisor.run()


def discard(job_id: str) -> None:
    """Undo `receive` and `start`: end the job, remove its folder."""
    job = JobFolder(job_id)
    if job.exists:
        _force(job)
    shutil.rmtree(job.path, ignore_errors=True)


def show(*job_ids: str) -> List[Row]:
    """One row a job: what of the plan others may see, the state, and whether its supervisor lives."""
    jobs = map(JobFolder, job_ids or known_jobs())
    return [describe(job) for job in jobs if job.exists]


def describe(job: JobFolder) -> Row:
    """One job as this node knows it."""
    plan = job.plan()
    state = job.state()
    containment = Containment.recorded(job.id, state.get("containment", {}))
    return {
        "plan": {key: plan[key] for key in _PLAN_KEYS},
        "rank": plan["rank"],
        "alive": job.supervisor_alive(),
        "processes": len(containment.members()) if containment.group or containment.outer else 0,
        "state": state,
    }


def stop_job(job_id: str) -> List[Row]:
    """End the job here; what it then is."""
    job = JobFolder(job_id)
    if not job.exists:
        return []
    _end(job)
    return [describe(job)]


def clean(*job_ids: str) -> List[Row]:
    """Remove the folders of these jobs (of all, where none is named) that have ended, and payloads without a user."""
    rows = []
    for job_id in job_ids or known_jobs():
        job = JobFolder(job_id)
        if not job.exists:
            continue
        removable = not job.supervisor_alive() and describe(job)["processes"] == 0
        if removable:
            Containment.recorded(job.id, job.state().get("containment", {})).remove()
            shutil.rmtree(job.path)
        rows.append({"id": job.id, "removed": removable})
    _clean_payloads()
    return rows


def _clean_payloads() -> None:
    """Remove payload folders other than this one that no living supervisor was started from."""
    root = os.path.join(state_root(), "payload")
    used = {os.path.realpath(payload_folder())}
    for job_id in known_jobs():
        job = JobFolder(job_id)
        if job.supervisor_alive():
            used.add(os.path.realpath(str(job.state().get("payload", ""))))
    for name in os.listdir(root) if os.path.isdir(root) else ():
        path = os.path.realpath(os.path.join(root, name))
        if path not in used and not _is_fresh(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_fresh(path: str) -> bool:
    """Another nodectl may be about to run what it has just copied."""
    return time.time() - os.path.getmtime(path) < _FRESH_S


def survey(folder: str, token: str, role: str) -> List[Row]:
    """What the checkpoint folder holds here; `role` is mark (leave the token), look, or clear."""
    if role == "clear":
        checkpoints.clear_token(folder, token)
        return []
    return [checkpoints.survey(folder, token, mark=role == "mark")]


def _detach(body: Callable[[int], None]) -> str:
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


def _end(job: JobFolder) -> None:
    """Stop the job on this host; returns when nothing of it is left, or after about 9 s."""
    if job.signal_supervisor(signal.SIGTERM):
        ends_s = time.monotonic() + _SUPERVISOR_S
        while job.supervisor_alive() and time.monotonic() < ends_s:
            time.sleep(_POLL_S)
    _force(job)


def _force(job: JobFolder) -> None:
    """Kill what is left of supervisor and ranks, and write the last state where the supervisor could not."""
    state = job.state()
    containment = Containment.recorded(job.id, state.get("containment", {}))
    containment.end_guard()
    job.signal_supervisor(signal.SIGKILL)
    state = job.state()
    if state.get("containment"):
        containment.kill(_FORCE_S)
        containment.remove()
    if not state["final"] or state["state"] == "received":
        job.write_state({**state, "state": "stopped", "final": True, "ended_at": time.time()})

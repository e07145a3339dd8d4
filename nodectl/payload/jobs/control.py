"""The commands that nodectl runs over SSH for jobs on a node: start, list, stop, clean, and others.

The answer is one frame with a list of rows.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Set

from ..common.frames import exit_status, send
from . import checkpoints, notes, shared_memory
from .contain import KILL_ROUND_S, Containment, by_mark
from .failures import SUPERVISOR_DIED, row
from .folder import (
    JobFolder,
    JobFolderError,
    extract,
    jobs_root,
    known_jobs,
    partial_jobs,
    payload_folder,
    state_root,
    sync,
    undone_jobs,
    write_atomic,
)

_FRESH_S = 3600.0
_SUPERVISOR_S = 7.0  # the ranks' grace and the supervisor's last heartbeats; the whole command must stay below 10 s
_FORCE_S = 1.5
_POLL_S = 0.02
_REMOVE_S = 20.0  # of a large project
_UNDONE = "the start was undone"
_LINGER = "/var/lib/systemd/linger"
_IN_SCOPE = "NODECTL_IN_SCOPE"
_SCOPE_TRY_S = 5.0
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
Row = Dict[str, Any]

_PLAN_KEYS = (
    *("id", "created_at", "operator", "script", "args", "hosts", "nproc_per_node", "lease_s", "checkpoint"),
    *("nodes", "restarts", "skipped"),
)


def main(argv: List[str]) -> int:
    """Run one command; 1 with the reason on stderr if it failed."""
    commands: Dict[str, Callable[..., Optional[List[Row]]]] = {
        "start": start,
        "discard": discard,
        "list": show,
        "stop": stop_job,
        "clean": clean,
        "survey": survey,
        "pulse": pulse,
        "examine": examine_job,
        "black_box": black_box_of,
    }
    os.umask(0o077)
    return exit_status(lambda: send(commands[argv[0]](*argv[1:]) or []), JobFolderError)


def _receive(job: JobFolder, rank: str) -> None:
    try:
        os.makedirs(job.partial, mode=0o700)
        lock = os.open(job.partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)  # as JobFolder.is_receiving looks for
        _unpack(job, int(rank))
        os.rename(job.partial, job.path)
        sync(jobs_root())
        if job.undone:  # checked after the rename: `discard` writes its mark first and looks for the folder then
            raise JobFolderError(_UNDONE)
    except BaseException:
        for number in _ENDS:  # further signals must not interrupt the removal
            signal.signal(number, signal.SIG_IGN)
        job.remove()
        raise
    os.close(lock)


def _unpack(job: JobFolder, rank: int) -> None:
    extract(job.partial)
    write_atomic(os.path.join(job.partial, "rank"), json.dumps({"rank": rank}).encode())
    for name in ("plan.json", "secret"):
        sync(os.path.join(job.partial, name))
    for name in ("ranks", "code"):  # the archive holds no empty folders, and the job runs in them
        os.makedirs(os.path.join(job.partial, name), mode=0o700, exist_ok=True)


def start(job_id: str, rank: str) -> List[Row]:
    """Receive a job and start its detached supervisor; return the job's row once it holds port and containment.

    On stdin come the values of the plan's variables, as one line of JSON that is never written to a disk, and the job's
    folder (tar.gz: plan.json, secret, code/), which is unpacked in one step or not at all.
    """
    job = JobFolder(job_id)
    enter_scope(f"{job.id}.{rank}")
    job.environment = _variables(sys.stdin.buffer.readline())
    if os.path.exists(job.path) or os.path.exists(job.partial):
        raise JobFolderError(f"{job.path} is there already")
    for number in _ENDS:  # if the operator's command ends, this one ends too, and leaves nothing
        signal.signal(number, lambda *_: sys.exit(1))
    _receive(job, rank)
    for number in _ENDS:
        signal.signal(number, signal.SIG_DFL)
    answer = json.loads(_detach(lambda pipe: _supervise(job, pipe)) or '{"error": "the supervisor died at its start"}')
    if "error" in answer:
        raise JobFolderError(answer["error"])
    return [answer]


def enter_scope(name: str) -> None:
    """Execute this program again inside `nodectl-NAME.scope`; return if that is impossible or already done."""
    import subprocess  # of use to this command alone

    program = os.path.abspath(sys.argv[0])
    if os.environ.pop(_IN_SCOPE, None) or os.geteuid() == 0 or not lingers() or not os.path.isfile(program):
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")  # a command over SSH may lack it
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
    nowhere = subprocess.DEVNULL
    try:  # asked before this program is given up for it
        if subprocess.call([*scope, "--", "true"], stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=_SCOPE_TRY_S):
            return
    except (OSError, subprocess.TimeoutExpired):
        return
    flags = ["-S"] if sys.flags.no_site else []
    argv = [*scope, f"--unit=nodectl-{name}.scope", "--", sys.executable, *flags, program, *sys.argv[1:]]
    os.execvpe(argv[0], argv, {**os.environ, _IN_SCOPE: "1"})  # noqa: S606 - an argv, and no shell is the point


def lingers() -> bool:
    """Tell whether the login's own manager outlives its sessions."""
    import pwd

    try:
        return os.path.exists(os.path.join(_LINGER, pwd.getpwuid(os.geteuid()).pw_name))
    except KeyError:
        return False


def _variables(text: bytes) -> Dict[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise JobFolderError("the values of the job's variables did not arrive whole") from error


def _supervise(job: JobFolder, pipe: int) -> None:
    # half of the start-up of this program, of which the other commands have no use
    from .launcher import redirect
    from .supervisor import Supervisor

    redirect(job.at("supervisor.log"))
    os.chdir(job.path)
    try:
        supervisor = Supervisor(job)
        supervisor.open()
    except Exception as error:  # whatever it is, the operator must learn of it
        os.write(pipe, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        raise
    undone = job.undone  # asked after its first state is written: who undoes looks in the other order
    if undone:
        supervisor.ask_stop()
    answer = {"error": _UNDONE} if undone else {"pid": os.getpid()}
    os.write(pipe, json.dumps(answer).encode())
    os.close(pipe)
    supervisor.run()
    while (following := supervisor.successor()) is not None:
        supervisor = following
        supervisor.open()
        supervisor.run()
    if undone:
        job.remove()


def discard(job_id: str) -> None:
    """Undo `start`, even if it is still running or yet to come: end the job, remove its folder.

    Raises JobFolderError if a part of the folder remains.
    """
    job = JobFolder(job_id)
    job.undo()
    if job.exists:
        _force(job)
    ends_s = time.monotonic() + _REMOVE_S
    while (left := [path for path in (job.path, job.partial) if os.path.exists(path)]) and time.monotonic() < ends_s:
        job.remove()
        time.sleep(_POLL_S)
    if left:
        raise JobFolderError(f"{left[0]} is left: nodectl jobs clean {job.id}")


def show(*job_ids: str) -> List[Row]:
    """Return a row a job: the plan's public fields, the state, and whether its supervisor lives."""
    received = [JobFolder(job_id) for job_id in job_ids or known_jobs()]
    partial = [JobFolder(job_id) for job_id in partial_jobs() if not job_ids or job_id in job_ids]
    marked = by_mark()
    rows = [(job, describe(job, marked=marked)) for job in received if job.exists]
    kept = [row for job, row in rows if job.exists]  # another operator may remove one meanwhile
    return kept + [describe(job) for job in partial]


def describe(job: JobFolder, state: Optional[Row] = None, marked: Optional[Dict[str, Set[int]]] = None) -> Row:
    """Return the row of a job on this node; `plan` is None and `problem` says why if it cannot be read.

    Its state is partial if its upload is still running or was interrupted.
    """
    row: Row = {"id": job.id, "plan": None, "rank": job.rank(), "problem": "", "alive": False, "processes": 0}
    if not job.exists:
        return {**row, "alive": job.is_receiving(), "state": {"state": "partial", "final": True}}
    try:
        plan = job.plan()
        row["plan"] = {key: plan.get(key) for key in _PLAN_KEYS}
    except (OSError, JobFolderError) as error:
        row["problem"] = str(error)
    state = state or job.state()
    row["problem"] = row["problem"] or state.get("repaired", "")
    row["stopped_by"] = job.stopped_by()
    if os.path.isdir(job.at("traces")):
        notes_of_ranks = glob.glob(os.path.join(glob.escape(job.at("traces")), "*.summary.json"))
        row["traces"] = [note for note in map(notes.read, notes_of_ranks) if note]
    row["alive"] = job.supervisor_alive()
    if "containment" in state:
        row["processes"] = len(
            Containment.recorded(job.id, state["containment"]).members(marked) - {state.get("pid", 0)}
        )
    return {**row, "state": state}


def pulse(job_id: str, pattern: str) -> List[Row]:
    """Return the job's progress on this node now; [] if the job is unknown here."""
    from . import pulse as reading  # of use to this command alone

    job = JobFolder(job_id)
    return [reading.pulse(job, pattern)] if job.exists else []


def stop_job(job_id: str, operator: str = "") -> List[Row]:
    """End the job on this node within about 9 s and return its row; the first operator who stops it is remembered."""
    job = JobFolder(job_id)
    if not job.exists:
        return []
    state = job.state()
    if not state["final"]:
        # a rebuilt state is in no file; rebuilding it again finds other supervisors that hold the job
        if "repaired" not in state and not job.stop_requested and not job.supervisor_alive():
            # that supervisor and guard had died is the cause of the end, not the stop
            dead = row("supervisor", SUPERVISOR_DIED, time.time())
            with contextlib.suppress(OSError):
                job.write_state({**state, "failures": [*state.get("failures", ()), dead]})
        job.note_stop(operator)
    if job.signal_supervisor(signal.SIGINT):
        ends_s = time.monotonic() + _SUPERVISOR_S
        while job.supervisor_alive() and time.monotonic() < ends_s:
            time.sleep(_POLL_S)
    return [describe(job, _force(job))]


def clean(*job_ids: str) -> List[Row]:
    """Remove the folders of these jobs (default: all) that have ended, and payload folders that nothing uses."""
    jobs = [JobFolder(job_id) for job_id in job_ids or sorted({*known_jobs(), *partial_jobs()})]
    rows = [_clean(job) for job in jobs if job.exists or os.path.isdir(job.partial)]
    for job_id in undone_jobs():
        job = JobFolder(job_id)
        if job_id in job_ids or not _is_fresh(job.tombstone):
            with contextlib.suppress(OSError):
                os.unlink(job.tombstone)
    _clean_payloads()
    return rows


def _clean(job: JobFolder) -> Row:
    row = describe(job)
    removed = not row["alive"] and row["processes"] == 0
    problem = row["problem"]
    if removed:
        Containment.recorded(job.id, row["state"].get("containment", {})).remove()
        problem = job.remove()
        removed = not problem
    return {"id": job.id, "removed": removed, "problem": "" if removed else problem}


def _clean_payloads() -> None:
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
    """Tell whether a folder is new: another nodectl may be about to run the payload that it has just copied."""
    return time.time() - os.path.getmtime(path) < _FRESH_S


def examine_job(job_id: str) -> List[Row]:
    """Return what the job's ranks do here, in about three seconds."""
    from .living import looks  # only this command needs it

    job = JobFolder(job_id)
    if not job.exists:
        raise JobFolderError(f"no job {job_id} on this host")
    report: Row = {}
    for part in looks(job):
        report.update(part)
    return [report]


def black_box_of(job_id: str) -> List[Row]:
    """Return what the black box of the job keeps here, a row a taking, oldest first."""
    from . import black_box  # of use to this command alone

    job = JobFolder(job_id)
    return black_box.read(job) if job.exists else []


def survey(folder: str, token: str, role: str) -> List[Row]:
    """Return whether the checkpoint folder holds the token; `role` is mark (leave the token), look, or clear."""
    if role == "clear":
        checkpoints.clear_token(folder, token)
        return []
    return [checkpoints.survey(folder, token, mark=role == "mark")]


def _detach(body: Callable[[int], None]) -> str:
    """Run `body(pipe)` in a process that outlives this one and its session; return what it wrote into the pipe."""
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


def _force(job: JobFolder) -> Row:
    """Kill the remaining supervisor and ranks, write the last state if the supervisor could not, and return it.

    A disk that takes no state does not prevent the kill.
    """
    last_state = job.state()
    containment = Containment.recorded(job.id, last_state.get("containment", {}))
    segments = containment.mapped()  # before ranks die with their supervisor
    ends_s = time.monotonic() + _FORCE_S
    # if its state was lost, `signal_supervisor` finds the next process that holds the job
    while job.signal_supervisor(signal.SIGKILL) and time.monotonic() < ends_s:
        time.sleep(KILL_ROUND_S)
    state = job.state()
    if "repaired" in state and not last_state["final"]:
        state = last_state  # the job ended by this stop, so the state before it is the better record
    if "containment" in state:
        containment.kill(_FORCE_S)
        shared_memory.remove(segments)
        containment.remove()
    if not state["final"] or state["state"] == "received":
        state = {**state, "state": "stopped", "final": True, "ended_at": time.time()}
        with contextlib.suppress(OSError):
            job.write_state(state)
    return state

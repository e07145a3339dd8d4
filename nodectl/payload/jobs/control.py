"""What a shell may ask of the jobs on a node: receive, start (or both in one), list, stop, clean.

The answer is one frame with a list of rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..common.frames import exit_status, send
from . import checkpoints, code_store, shared_memory
from .contain import KILL_ROUND_S, Containment
from .failures import SUPERVISOR_DIED, row
from .folder import (
    RECEIVER,
    JobFolder,
    JobFolderError,
    PlanVersionError,
    jobs_root,
    known_jobs,
    partial_jobs,
    payload_folder,
    state_root,
    sync_file,
    sync_folder,
    undone_jobs,
    write_atomic,
)
from .nsinit import redirect
from .process import read_stat
from .process import send as signal_to

_FRESH_S = 3600.0
_SUPERVISOR_S = 7.0  # grace for the ranks, then its parting words; the whole must stay below 10 s
_FORCE_S = 1.5
_POLL_S = 0.02
_REMOVE_S = 20.0  # of a large project
_UNDONE = "the start was undone"
_ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
Row = Dict[str, Any]

_PLAN_KEYS = (
    *("id", "created_at", "operator", "script", "args", "hosts", "nproc_per_node", "lease_s", "checkpoint"),
    *("nodes", "restarts", "skipped"),
)


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
        "pulse": pulse,
        "examine": examine_job,
        "traces": traces_of,
    }
    os.umask(0o077)
    return exit_status(lambda: send(commands[argv[0]](*argv[1:]) or []), JobFolderError)


def receive(job_id: str, rank: str) -> None:
    """Unpack a job's folder from stdin (tar.gz: plan.json, secret, code/), in one step or not at all."""
    job = JobFolder(job_id)
    if os.path.exists(job.path):
        raise JobFolderError(f"{job.path} is there already")
    with _ended_by_signals():  # the operator's end is this one's too, and nothing is left then
        _receive(job, rank)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM, SIGHUP and SIGINT raise SystemExit here; what is started later has the handlers it is used to."""

    def leave(*_: object) -> None:
        raise SystemExit(1)

    before = {number: signal.signal(number, leave) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _receive(job: JobFolder, rank: str) -> None:
    os.makedirs(job.partial, mode=0o700)
    try:
        _unpack(job, int(rank))
        os.rename(job.partial, job.path)
        sync_folder(jobs_root())
        if job.undone:  # asked after the rename: who undoes looks in the other order
            raise JobFolderError(_UNDONE)
    except BaseException:
        for number in _ENDS:  # the operator's end may come in several ways, and one is enough
            signal.signal(number, signal.SIG_IGN)
        job.remove()
        raise


def _unpack(job: JobFolder, rank: int) -> None:
    stat = read_stat(os.getpid())
    receiver = os.path.join(job.partial, RECEIVER)
    with open(receiver, "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "start_ticks": stat.start_ticks if stat else 0}, file)
    _extract(job.partial)
    code_store.assemble(job.partial)
    before = {"rank": rank, "segments": sorted(shared_memory.present())}  # for who ends the job without its state
    write_atomic(os.path.join(job.partial, "rank"), json.dumps(before).encode())
    for name in ("plan.json", "secret"):
        sync_file(os.path.join(job.partial, name))
    for name in ("ranks", "code"):  # of a folder without files nothing travels, and the job runs in it
        os.makedirs(os.path.join(job.partial, name), mode=0o700, exist_ok=True)
    os.unlink(receiver)


def _extract(folder: str) -> None:
    import tarfile  # the other commands need not wait for it

    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as archive:
            options: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(folder, **options)  # noqa: S202 - what the operator's own nodectl packed
    except tarfile.TarError as error:
        raise JobFolderError(str(error)) from error


def start(job_id: str, rank: str = "") -> List[Row]:
    """Start the supervisor, detached; what it is, once it holds its port and its containment.

    Values of variables that the plan names come as a line of JSON on stdin: they are never written to a disk. With
    `rank`, the archive of `receive` comes behind it, and is received first.
    """
    from . import cgroup  # of use to this command alone

    job = JobFolder(job_id)
    cgroup.enter_scope(f"{job.id}.{rank or os.getpid()}")
    if not rank and not job.plan().get("env_names"):
        return _start(job, {})
    variables = _variables(sys.stdin.buffer.readline())
    if rank:
        receive(job_id, rank)
    return _start(job, variables)


def _start(job: JobFolder, environment: Dict[str, str]) -> List[Row]:
    checkpoint = job.plan()["checkpoint"]
    job.environment = environment
    if checkpoint is not None:
        checkpoints.clear_token(checkpoint["dir"], job.id)
    answer = json.loads(_detach(lambda pipe: _supervise(job, pipe)) or '{"error": "the supervisor died at its start"}')
    if "error" in answer:
        raise JobFolderError(answer["error"])
    return [answer]


def _variables(text: bytes) -> Dict[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise JobFolderError("the values of the job's variables did not arrive whole") from error


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
    undone = job.undone  # asked after its first state is written: who undoes looks in the other order
    if undone:
        supervisor.ask_stop()
    answer = {"error": _UNDONE} if undone else {"pid": os.getpid(), "containment": supervisor.containment.kind}
    os.write(pipe, json.dumps(answer).encode())
    os.close(pipe)
    _run_attempts(supervisor)
    if undone:
        job.remove()


def _run_attempts(first: Any) -> None:
    """One attempt after the other, to the job's end."""
    supervisor = first
    supervisor.run()
    while supervisor.following is not None:
        supervisor = supervisor.successor()
        supervisor.open()
        supervisor.run()


def discard(job_id: str) -> None:
    """Undo `receive` and `start`, also those that are still on their way: end the job, remove its folder.

    JobFolderError where something of it is left after that.
    """
    job = JobFolder(job_id)
    job.undo()
    if job.exists:
        _force(job)
    ends_s = time.monotonic() + _REMOVE_S
    while (left := [path for path in (job.path, job.partial) if os.path.exists(path)]) and time.monotonic() < ends_s:
        signal_receiver(job)
        job.remove()
        time.sleep(_POLL_S)
    if left:
        raise JobFolderError(f"{left[0]} is left: nodectl jobs clean {job.id}")


def signal_receiver(job: JobFolder) -> None:
    """Let who unpacks the job end, which leaves nothing."""
    if job.is_receiving():
        signal_to(job.receiver()["pid"], signal.SIGTERM)


def show(*job_ids: str) -> List[Row]:
    """One row a job: what of the plan others may see, the state, and whether its supervisor lives."""
    received = [JobFolder(job_id) for job_id in job_ids or known_jobs()]
    partial = [JobFolder(job_id) for job_id in partial_jobs() if not job_ids or job_id in job_ids]
    rows = [(job, describe(job)) for job in received if job.exists]
    kept = [row for job, row in rows if job.exists]  # another operator may remove one meanwhile
    return kept + [describe_partial(job) for job in partial]


def describe(job: JobFolder, state: Optional[Row] = None) -> Row:
    """One job as this node knows it; `plan` is None, with a `problem`, where it cannot be read."""
    row: Row = {"id": job.id, "plan": None, "rank": job.rank(), "problem": "", "alive": False, "processes": 0}
    try:
        plan = job.plan()
        row["plan"] = {key: plan.get(key) for key in _PLAN_KEYS}
    except PlanVersionError as error:
        return {**row, "problem": str(error), "state": {"state": "unreadable", "final": True}}
    except (OSError, JobFolderError) as error:
        row["problem"] = str(error)
    state = state or job.state()
    containment = Containment.recorded(job.id, state.get("containment", {}))
    held = containment.group or containment.outer or "repaired" in state
    row["problem"] = row["problem"] or state.get("repaired", "")
    row["stopped_by"] = job.stopped_by()
    row["alive"], row["processes"] = job.supervisor_alive(), len(containment.members()) if held else 0
    return {**row, "state": state}


def describe_partial(job: JobFolder) -> Row:
    """Return the row of a job whose upload goes on, or broke off."""
    state = {"state": "partial", "final": True}
    return {
        "id": job.id,
        "plan": None,
        "rank": None,
        "problem": "",
        "alive": job.is_receiving(),
        "processes": 0,
        "state": state,
    }


def pulse(job_id: str, pattern: str) -> List[Row]:
    """How the job does here at this moment; nothing where it is not known here."""
    from . import pulse as reading  # of use to this command alone

    job = JobFolder(job_id)
    return [reading.pulse(job, pattern)] if job.exists else []


def stop_job(job_id: str, operator: str = "") -> List[Row]:
    """End the job here; what it then is. The first operator who stops it is remembered."""
    job = JobFolder(job_id)
    signal_receiver(job)
    if not job.exists:
        return []
    _refuse_other_version(job)
    state = job.state()
    if not state["final"]:
        # a state that was rebuilt is no file's: who else holds the job is found by rebuilding it again
        if "repaired" not in state and not job.stop_requested and not job.supervisor_alive():
            _note_dead(job, state)
        job.note_stop(operator)
    return [describe(job, _end(job))]


def _note_dead(job: JobFolder, state: Row) -> None:
    """Supervisor and guard died before anybody asked for an end, and wrote nothing of it: the cause, not the stop."""
    dead = row("supervisor", SUPERVISOR_DIED, time.time())
    with contextlib.suppress(OSError):
        job.write_state({**state, "failures": [*state.get("failures", ()), dead]})


def _refuse_other_version(job: JobFolder) -> None:
    """PlanVersionError; a plan that cannot be read keeps nobody from ending the job."""
    try:
        job.plan()
    except PlanVersionError:
        raise
    except (OSError, JobFolderError):
        return


def clean(*job_ids: str) -> List[Row]:
    """Remove the folders of these jobs (of all, where none is named) that have ended, and payloads without a user."""
    jobs = [JobFolder(job_id) for job_id in job_ids or sorted({*known_jobs(), *partial_jobs()})]
    rows = [_clean(job) for job in jobs if job.exists or os.path.isdir(job.partial)]
    for job_id in undone_jobs():
        job = JobFolder(job_id)
        if job_id in job_ids or not _is_fresh(job.tombstone):
            with contextlib.suppress(OSError):
                os.unlink(job.tombstone)
    _clean_payloads()
    if not job_ids:
        code_store.clean()
    return rows


def _clean(job: JobFolder) -> Row:
    row = describe(job) if job.exists else describe_partial(job)
    removed = not row["alive"] and row["processes"] == 0 and row["state"]["state"] != "unreadable"
    problem = row["problem"]
    if removed:
        state = row["state"]
        Containment.recorded(job.id, state.get("containment", {})).remove(_ended_at(state))
        problem = job.remove()
        removed = not problem
    return {"id": job.id, "removed": removed, "problem": "" if removed else problem}


def _ended_at(state: Dict[str, Any]) -> Optional[float]:
    """Return, by the clock, where the job's end wrote it; a state that had to be told anew does not know."""
    return state.get("ended_at") if state["final"] and "repaired" not in state else None


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


def examine_job(job_id: str) -> List[Row]:
    """Return what the job's ranks do here, in about three seconds."""
    from .living import examine  # what the other commands have no use for

    job = JobFolder(job_id)
    if not job.exists:
        raise JobFolderError(f"no job {job_id} on this host")
    return [examine(job)]


def traces_of(job_id: str) -> List[Row]:
    """Return what the traces of the job's ranks here tell, a row a rank; nothing where it is not known here."""
    from . import traces  # of use to this command alone

    job = JobFolder(job_id)
    return traces.look(job) if job.exists else []


def survey(folder: str, token: str, role: str) -> List[Row]:
    """Return what the checkpoint folder holds here; `role` is mark (leave the token), look, or clear."""
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


def _end(job: JobFolder) -> Row:
    """Stop the job on this host; its last state, when nothing of it is left, or after about 9 s."""
    if job.signal_supervisor(signal.SIGTERM):
        ends_s = time.monotonic() + _SUPERVISOR_S
        while job.supervisor_alive() and time.monotonic() < ends_s:
            time.sleep(_POLL_S)
    return _force(job)


def _force(job: JobFolder) -> Row:
    """Kill what is left of supervisor and ranks, and write the last state where the supervisor could not.

    A disk that takes no state keeps nothing alive: the last state is the answer.
    """
    last_state = job.state()
    containment = Containment.recorded(job.id, last_state.get("containment", {}))
    containment.end_guard()
    ends_s = time.monotonic() + _FORCE_S
    # where its state was lost, the next of those that held the job is then found
    while job.signal_supervisor(signal.SIGKILL) and time.monotonic() < ends_s:
        time.sleep(KILL_ROUND_S)
    state = job.state()
    if "repaired" in state and not last_state["final"]:
        state = last_state  # how it ended is known: by this
    if state.get("containment"):
        containment.kill(_FORCE_S)
        containment.remove(_ended_at(state))
    if not state["final"] or state["state"] == "received":
        state = {**state, "state": "stopped", "final": True, "ended_at": time.time()}
        with contextlib.suppress(OSError):
            job.write_state(state)
    return state

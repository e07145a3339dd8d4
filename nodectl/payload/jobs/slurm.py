"""What a shell may ask of the jobs that Slurm runs, on a host that has its commands: submit, list, stop, clean, logs.

A job's folder lies below a root that all nodes share: `plan.json`, `job.sh`, `code/`, `slurm.json` (Slurm's number),
and what the batch script leaves: `hosts`, `batch.log`, `ranks/N.log`, `ranks/N.end`, `ended`. The answer is one frame
with a list of rows; only `logs` answers in many. No word of a request ever passes through a shell.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from ..common.frames import exit_status, send
from . import evidence, flight, logs, notes
from .folder import JobFolderError, check_id, extract, state_root, write_atomic
from .job_id import is_job_id

_DROPPED_ENV = ("SSH_", "XDG_SESSION_", "NODECTL_", "SLURM_", "SBATCH_")
_COMMAND_S = 60.0
_STOPPED_S = 90.0
_POLL_S = 0.3
_ASK_QUEUE_S = 3.0
_ALIVE_S = 2.0
_TAIL_BYTES = 64 * 1024
_UNREAD = "NO_ANSWER"
_ACTIVE = frozenset(
    {
        *("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "RESIZING"),
        *("STOPPED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", _UNREAD),
    }
)
Row = Dict[str, Any]


def main(argv: List[str]) -> int:
    """Run one command below the root that is named after it (`''`: the login's state folder); 1 where it failed."""
    commands: Dict[str, Callable[..., List[Row]]] = {"submit": submit, "list": show, "stop": stop, "clean": clean}
    os.umask(0o077)
    root = argv[1] or os.path.join(state_root(), "slurm")

    def answer() -> None:
        if argv[0] == "logs":
            stream(root, *argv[2:])
        else:
            send(commands[argv[0]](root, *argv[2:]))

    return exit_status(answer, JobFolderError, ValueError)


def submit(root: str, job_id: str) -> List[Row]:
    """Unpack a job's folder and hand its script to sbatch.

    Standard input: a line of JSON with the variables of the job, which are in no file of ours; then the tar.gz.
    """
    folder = os.path.join(root, check_id(job_id))
    environment = json.loads(sys.stdin.buffer.readline())
    os.makedirs(folder, mode=0o700)
    try:
        extract(folder)
        shutil.copytree(notes.hook_folder(), os.path.join(folder, "in_rank"), ignore=shutil.ignore_patterns("__*"))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED_ENV)}
        reply = _run(["sbatch", "--parsable", "job.sh"], cwd=folder, env={**kept, **environment})
        number = reply.strip().splitlines()[-1].partition(";")[0]
        write_atomic(os.path.join(folder, "slurm.json"), json.dumps({"slurm_id": int(number)}).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return [{"id": job_id, "slurm_id": int(number), "folder": folder}]


def _run(argv: Sequence[str], **more: Any) -> str:
    """Return what a command of Slurm's prints; JobFolderError with its own words where it fails."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=_COMMAND_S, check=False, **more,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise JobFolderError(f"{argv[0]} is not there: this host has none of Slurm's commands") from error
    except subprocess.TimeoutExpired as error:
        raise JobFolderError(f"{argv[0]} did not answer for {_COMMAND_S:g} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise JobFolderError("; ".join(lines[-3:]) or f"{argv[0]} ended with {done.returncode}")
    return str(done.stdout, errors="replace")


def show(root: str, *job_ids: str) -> List[Row]:
    """Return a row a job: its plan, what Slurm says of it, and how its nodes' parts ended."""
    folders = list(_folders(root, job_ids))
    queue = _queue([number for _, number in folders])
    return [_row(folder, number, queue.get(number)) for folder, number in folders]


def _folders(root: str, job_ids: Sequence[str] = ()) -> Iterator[Tuple[str, int]]:
    """Folder and Slurm's number of each job, oldest first; those without a number were never submitted."""
    names = sorted(os.listdir(root)) if os.path.isdir(root) else []
    for name in names:
        if is_job_id(name) and (not job_ids or name in job_ids):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                yield os.path.join(root, name), int(_json(os.path.join(root, name, "slurm.json"))["slurm_id"])


def _json(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _queue(numbers: Sequence[int]) -> Dict[int, Dict[str, str]]:
    """State and reason of those jobs that the controller still knows; it forgets some minutes after their end."""
    if not numbers:
        return {}
    argv = ["squeue", "--noheader", "--states=all", f"--jobs={','.join(map(str, numbers))}", "--format=%i|%T|%P|%r"]
    try:
        text = _run(argv)
    except JobFolderError as error:
        if "Invalid job id" in str(error):  # of the only one that was asked for
            return {}
        return {number: {"state": _UNREAD, "reason": str(error), "partition": ""} for number in numbers}
    rows = [line.split("|", 3) for line in text.splitlines() if line.count("|") >= 3]
    return {
        int(number): {"state": state, "partition": partition, "reason": "" if reason == "None" else reason}
        for number, state, partition, reason in rows
        if number.isdigit()
    }


def _row(folder: str, number: int, queued: Optional[Dict[str, str]]) -> Row:
    hosts, ended = _hosts(folder), _end(os.path.join(folder, "ended"))
    queue_row = queued or _forgotten(folder, number, ended)
    plan = _json(os.path.join(folder, "plan.json"))
    ends = {host: _part(folder, rank, int(plan["nproc_per_node"])) for rank, host in enumerate(hosts)}
    return {
        "id": os.path.basename(folder),
        "plan": plan,
        "slurm_id": number,
        "folder": folder,
        **queue_row,
        "hosts": hosts,
        "ended": ended,
        "ends": ends,
        "flight": _flight(folder, ended is not None) if _is_unsettled(ends) else {},
        "batch": _last_words(os.path.join(folder, "batch.log")),
    }


def _is_unsettled(ends: Dict[str, Optional[Row]]) -> bool:
    """Ranks waited for each other in vain, or called different things, as far as they say."""
    kinds = {failure["kind"] for end in ends.values() if end for failure in end["failures"]}
    return "communication" in kinds and kinds <= {"communication", "terminated"}


def _flight(folder: str, is_over: bool) -> Row:
    """Return what torch's flight recorders say; of a job that has ended it is read once."""
    kept = os.path.join(folder, "flight.json")
    with contextlib.suppress(OSError, ValueError):
        return dict(_json(kept))
    dumps = flight.read_dumps(folder, float("-inf"))
    if is_over:
        with contextlib.suppress(OSError):  # another login's job
            write_atomic(kept, json.dumps(dumps).encode())
    return dumps


def _hosts(folder: str) -> List[str]:
    try:
        with open(os.path.join(folder, "hosts"), encoding="utf-8") as file:
            return file.read().split()
    except OSError:
        return []


def _end(path: str) -> Optional[Dict[str, Any]]:
    """Exit status and time of a script's last words, and how long its node had been up then, where it says so."""
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        status, moment, *up = file.read().split()
        return {"exit_status": int(status), "time": float(moment), "up_s": float(up[0]) if up else None}
    return None


def _forgotten(folder: str, number: int, ended: Optional[Dict[str, Any]]) -> Dict[str, str]:
    """Return what became of a job that the controller has forgotten: by its last words, else by Slurm's accounting."""
    if ended is not None:
        return {"state": "FAILED" if ended["exit_status"] else "COMPLETED", "reason": "", "partition": ""}
    state = ""
    with contextlib.suppress(JobFolderError):
        argv = ["sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={number}", "--format=State"]
        state = (_run(argv).split() or [""])[0]
    if not state and os.path.exists(os.path.join(folder, "stopped")):
        state = "CANCELLED"
    return {
        "state": state or "FORGOTTEN",
        "reason": "" if state else "its controller knows it no more",
        "partition": "",
    }


def _part(folder: str, rank: int, ranks: int) -> Optional[Dict[str, Any]]:
    """How a node's part ended, with its failures; None while it runs, or where it was killed."""
    end = _end(os.path.join(folder, "ranks", f"{rank}.end"))
    return end and {**end, "failures": evidence.of_node(folder, rank, ranks, end) if end["exit_status"] else []}


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _last_words(path: str) -> str:
    lines = [line for line in _tail(path).splitlines() if line.strip()]
    return "\n".join(lines[-3:])[-1000:]


def stop(root: str, job_id: str) -> List[Row]:
    """Cancel the job, and wait until nothing of it is left on its nodes: as long as Slurm's KillWait and some more."""
    folder, number = _one(root, job_id)
    write_atomic(os.path.join(folder, "stopped"), repr(time.time()).encode())
    _run(["scancel", str(number)])
    until = time.monotonic() + _STOPPED_S
    while time.monotonic() < until:
        if _queue([number]).get(number, {}).get("state") not in _ACTIVE:
            return show(root, job_id)
        time.sleep(_POLL_S)
    raise JobFolderError(f"Slurm's job {number} was cancelled, and did not end within {_STOPPED_S:g} s")


def _one(root: str, job_id: str) -> Tuple[str, int]:
    folders = list(_folders(root, [check_id(job_id)]))
    if not folders:
        raise JobFolderError(f"no job {job_id} on this host")
    return folders[0]


def clean(root: str, *job_ids: str) -> List[Row]:
    """Remove the folders of these jobs, but of those that still run; a row each."""
    rows = []
    for row in show(root, *job_ids) if job_ids else []:
        runs = row["state"] in _ACTIVE
        if not runs:
            shutil.rmtree(row["folder"])
        problem = f"Slurm says that it is {row['state']}" if runs else ""
        rows.append({"id": row["id"], "removed": not runs, "problem": problem})
    return rows


def stream(root: str, job_id: str, mode: str, request: str) -> None:
    """Frames `{"file", "host", "offset", "text"}`: lines of the batch script and of each node; then `{"end"}`.

    `mode` is `follow` (until Slurm has ended the job; `{"alive"}` every 2 s) or `once`. `request` is JSON: `offsets` by
    file, `tail` lines of each, `files` where not all are wanted, `local_rank` for the lines of one.
    """
    folder, number = _one(root, job_id)
    asked = json.loads(request)
    follower = _Follower(folder, asked)
    spoke_s, looked_s, running = time.monotonic(), 0.0, mode == "follow"
    while True:
        if running and time.monotonic() - looked_s > _ASK_QUEUE_S:
            queued = _queue([number]).get(number)
            running = queued is not None and queued["state"] in _ACTIVE
            looked_s = time.monotonic()
        if follower.pass_on(last=not running):
            spoke_s = time.monotonic()
        elif not running:
            send({"end": True})
            return
        elif time.monotonic() - spoke_s > _ALIVE_S:
            send({"alive": True})
            spoke_s = time.monotonic()
        else:
            time.sleep(_POLL_S)


class _Follower:
    """Passes on what is written to the job's files: whole lines, and long ones in parts."""

    def __init__(self, folder: str, asked: Dict[str, Any]) -> None:
        self._folder, self._wanted = folder, asked.get("files")
        self._offsets: Dict[str, int] = dict(asked.get("offsets") or {})
        self._tail: Optional[int] = asked.get("tail")
        self._is_wanted = logs.wanted(asked.get("local_rank"))
        self._streams: Dict[str, logs.Stream] = {}

    def pass_on(self, *, last: bool) -> bool:
        """Send what has come; with `last` also a line without an end. False where there was nothing."""
        self._find()
        sent = [stream.pass_on(partial=last) for stream in self._streams.values()]  # none waits for another's end
        return any(sent)

    def _find(self) -> None:
        """Open the files that have come since."""
        hosts = [("batch", "slurm"), *((str(rank), host) for rank, host in enumerate(_hosts(self._folder)))]
        for name, host in hosts:
            if name not in self._streams and (self._wanted is None or name in self._wanted):
                place = "batch.log" if name == "batch" else os.path.join("ranks", f"{name}.log")
                with contextlib.suppress(OSError):
                    file = open(os.path.join(self._folder, place), "rb")  # noqa: SIM115 - it is read until the end
                    self._streams[name] = logs.Stream({"file": name, "host": host}, file, self._is_wanted)
                    self._streams[name].seek(self._start(name, file))

    def _start(self, name: str, file: Any) -> int:
        """Return where to begin: where another reader stopped, with the last lines, or at the beginning."""
        if name in self._offsets or self._tail is None:
            return self._offsets.get(name, 0)
        starts = list(itertools.islice(logs.line_starts(file, self._is_wanted), self._tail))
        return starts[-1] if starts else int(file.seek(0, os.SEEK_END))

"""The life of a job on one host: wait for the others, run the ranks, end them with the first failure anywhere."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from typing import Any, Dict, List, Optional

from . import heartbeat as hb
from .checkpoint_copy import Courier
from .classify import first
from .contain import MARKER, Containment
from .folder import JobFolder, payload_folder
from .nsinit import Command
from .process import exit_status, read_stat
from .ranks import Death, RankWatch, describe, tail, unseen

_TICK_S = 0.2
_FIRST_LOOKS_S, _FIRST_TICK_S = 10.0, 0.05  # ranks that fail at once are gone soon
_SETTLE_S = 1.0  # after a failure: until the others have noted their own, before ours are ended
_PARTING_S = 0.6  # beats after everybody has ended, so that the last word is heard
_STOPPED_S = 2.0  # how long a stopped supervisor waits for the others' last word
_LAST_WORDS_BYTES = 2000
_DROPPED_ENV = ("SSH_", "XDG_SESSION_", "NODECTL_")


class Supervisor:
    """One job on this host. Everything that happens is in `step`; the clock is monotonic seconds."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self.plan = job.plan()
        self.rank: int = self.plan["rank"]
        self.hosts: List[Dict[str, str]] = self.plan["hosts"]
        self.state = hb.WAITING
        self.failures: List[Dict[str, Any]] = []
        self.deaths: List[Dict[str, Any]] = []
        self.lost: List[int] = []
        self.exit_status: Optional[int] = None
        self.final = False
        self.ended_at: Optional[float] = None
        self._stop_asked = False
        self._beat_number = 0
        self._next_beat_s = 0.0
        self._born_s = time.monotonic()
        self._ended_s = 0.0
        self._spawned_s: Optional[float] = None
        self._term_s: Optional[float] = None
        self._kill_s: Optional[float] = None
        self._end_state = hb.FAILED
        self._signature = ""
        self._identity = {**_identity(), "rank": self.rank}

    def open(self) -> None:
        """Take the port, the containment and the first state; OSError where that fails."""
        peers = [rank for rank in range(len(self.hosts)) if rank != self.rank]
        self.peers = hb.Peers(peers, float(self.plan["lease_s"]))
        self.job.reserve()
        self.mesh = hb.Mesh(self.job.id, self.job.secret(), self.hosts, self.rank, int(self.plan["heartbeat_port"]))
        self.containment = Containment.create(self.job.id, self.rank)
        self.courier = Courier(self.job, self.plan)
        self.selector = selectors.DefaultSelector()
        self.watch = RankWatch(self.job.id, self.containment.members, self.selector)
        self.selector.register(self.mesh.socket, selectors.EVENT_READ)
        self._save()

    def run(self) -> None:
        """Live until the job has ended on every host and they know that it has here."""
        wake_reader, wake_writer = socket.socketpair()
        for end in (wake_reader, wake_writer):
            end.setblocking(False)
        signal.set_wakeup_fd(wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._ask_stop)
        self.selector.register(wake_reader, selectors.EVENT_READ)
        self.courier.start()
        while not self._may_leave(time.monotonic()):
            ready = self.selector.select(self._wait_s(time.monotonic()))
            if any(key.fileobj is wake_reader for key, _ in ready):
                wake_reader.recv(4096)
            self.step(time.monotonic())
        self.courier.end()
        self.containment.remove()

    def _ask_stop(self, *_: object) -> None:
        self._stop_asked = True

    def _wait_s(self, now_s: float) -> float:
        young = self._spawned_s is not None and now_s - self._spawned_s < _FIRST_LOOKS_S and not self.final
        return max(0.0, min(_FIRST_TICK_S if young else _TICK_S, self._next_beat_s - now_s))

    def step(self, now_s: float) -> None:
        """Hear, look, decide, tell: in this order, so that silence is judged after all that lay in the socket."""
        for beat in self.mesh.receive():
            self.peers.hear(beat, now_s)
        self.courier.listen()
        self._look()
        if not self.final:
            self._decide(now_s)
        self._note_lost(now_s)
        self._tell(now_s)
        self._save()

    def _look(self) -> None:
        """Note dead ranks before the launcher's own end is taken in."""
        if self.containment.outer and not self.final:
            self.watch.look()
            for death in self.watch.deaths(after_stop=self._term_s is not None):
                self._note_death(death)
        self._reap()

    def _note_death(self, death: Death) -> None:
        failure = describe(death, self.job.at("ranks"), self.job.at("output.log"), after_another=bool(self.deaths))
        if failure:
            self.deaths.append(failure)
            self.failures.append(failure)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.containment.outer:
                self.exit_status = exit_status(status)
            self.courier.reaped(pid, status)

    def _decide(self, now_s: float) -> None:
        if self.state == hb.WAITING:
            self._decide_waiting(now_s)
        if self.state == hb.RUNNING:
            self._decide_running(now_s)
        if self.state in (hb.ENDING, hb.STOPPING):
            self._decide_ending(now_s)

    def _decide_waiting(self, now_s: float) -> None:
        if self._told_to_end(now_s):
            return
        if self.courier.problem:
            self._fail("checkpoint", self.courier.problem)
            self._end(now_s, hb.FAILED, settle_s=0)
        elif not self.peers.unheard() and self.courier.ready:
            self._spawn(now_s)
        elif self.peers.unheard() and now_s - self._born_s > float(self.plan["start_deadline_s"]):
            for rank in self.peers.unheard():
                self._lose(rank, "was never heard: its supervisor did not start, or a firewall drops UDP")
            self._end(now_s, hb.FAILED, settle_s=0)

    def _spawn(self, now_s: float) -> None:
        problem = self.containment.spawn(_launcher_command(self.plan, self.job, self.courier.folder or ""))
        self.state, self._spawned_s = hb.RUNNING, now_s
        if problem:
            self._fail("launcher", f"{self.plan['launcher']} could not be started: {problem}")
            self._end(now_s, hb.FAILED, settle_s=0)

    def _told_to_end(self, now_s: float) -> bool:
        """The operator, or another host, ended the job."""
        if self._stop_asked or self.peers.any_in(hb.STOPPING, hb.STOPPED):
            self._end(now_s, hb.STOPPED, settle_s=0)
        elif self.peers.any_in(hb.ENDING, hb.FAILED):
            self._end(now_s, hb.FAILED, settle_s=_SETTLE_S)
        return self.state in (hb.STOPPING, hb.ENDING)

    def _decide_running(self, now_s: float) -> None:
        if self._told_to_end(now_s):
            return
        if self.failures:
            settle_s = 0 if self.lost else _SETTLE_S
            self._end(now_s, hb.FAILED, settle_s=settle_s)
        elif self.exit_status == 0:
            self.containment.kill(5, self._reap)
            if self.courier.drained(now_s):
                self._finish(now_s, hb.FINISHED)
        elif self.exit_status is not None:
            self._note_launcher_exit()
            self._end(now_s, hb.FAILED, settle_s=_SETTLE_S)

    def _note_launcher_exit(self) -> None:
        self._note_unseen()
        if not self.failures:
            words = tail(self.job.at("output.log"), _LAST_WORDS_BYTES).strip().splitlines()
            self._fail("launcher", f"exit status {self.exit_status}: {words[-1] if words else 'without a word'}")

    def _note_unseen(self) -> None:
        """A rank can fail and be gone between two looks, and its neighbour's end, which it caused, be seen."""
        known = {failure["rank"] for failure in self.failures}
        logs, output = self.job.at("ranks"), self.job.at("output.log")
        self.failures += unseen(self.plan, logs, output, known=known, after_stop=self._term_s is not None)

    def _end(self, now_s: float, end_state: str, *, settle_s: float) -> None:
        self._end_state = end_state
        self.state = hb.STOPPING if end_state == hb.STOPPED else hb.ENDING
        self._next_beat_s = now_s
        self._term_at_s = now_s + settle_s

    def _decide_ending(self, now_s: float) -> None:
        """SIGTERM when the others have had their moment, SIGKILL for what is left after the grace."""
        if self._stop_asked and self._end_state != hb.STOPPED:
            self._term_at_s = now_s
        if self._term_s is None and now_s >= self._term_at_s:
            self.containment.terminate()
            self._term_s = now_s
        launcher_gone = not self.containment.outer or self.exit_status is not None
        overdue = self._term_s is not None and now_s - self._term_s > float(self.plan["grace_s"])
        if launcher_gone or overdue:
            self._term_s = now_s if self._term_s is None else self._term_s
            if self.containment.kill(5, self._reap):
                self._look()
                if self._end_state == hb.FAILED:
                    self._note_unseen()
                self.courier.drained(now_s)
                self._finish(now_s, self._end_state)

    def _finish(self, now_s: float, state: str) -> None:
        self.state, self.final = state, True
        self._ended_s, self.ended_at = now_s, time.time()
        self._next_beat_s = now_s

    def _note_lost(self, now_s: float) -> None:
        for rank in self.peers.newly_lost(now_s):
            self._lose(rank, f"no heartbeat for {self.peers.lease_s:g} s")

    def _lose(self, rank: int, why: str) -> None:
        self.lost.append(rank)
        self._fail("host_lost", f"{self.hosts[rank]['name']}: {why}", lost=rank)

    def _fail(self, kind: str, message: str, **more: object) -> None:
        failure = {"kind": kind, "message": message, "rank": None, "exit_status": None, "time": time.time()}
        self.failures.append({**failure, **more})

    def _tell(self, now_s: float) -> None:
        if now_s < self._next_beat_s:
            return
        calm = self.state == hb.RUNNING or (self.final and not self.peers.all_ended())
        self._next_beat_s = now_s + (float(self.plan["beat_s"]) if calm else _TICK_S)
        self._beat_number += 1
        self.mesh.send(hb.Beat(self.rank, self._beat_number, self.state, first(self.failures)))

    def _may_leave(self, now_s: float) -> bool:
        if not self.final:
            return False
        waited_s = now_s - self._ended_s
        if self.state == hb.STOPPED and waited_s > _STOPPED_S:
            return True
        return self.peers.all_ended() and waited_s > (_PARTING_S if self.peers.ranks else 0)

    def _save(self) -> None:
        """Write the state where it has changed."""
        state = {
            **self._identity,
            "state": self.state,
            "final": self.final,
            "containment": self.containment.record(),
            "ended_at": self.ended_at,
            "exit_status": self.exit_status,
            "failures": self.failures,
            "lost": self.lost,
            "checkpoint": self.courier.note,
            "heard": {str(rank): failure for rank, failure in self.peers.failures.items()},
        }
        signature = repr(state)
        if signature != self._signature:
            self._signature = signature
            self.job.write_state(state)


def _identity() -> Dict[str, Any]:
    """What never changes: this process, and the payload that it was started from."""
    stat = read_stat(os.getpid())
    return {
        "pid": os.getpid(),
        "start_ticks": stat.start_ticks if stat else 0,
        "started_at": time.time(),
        "payload": payload_folder(),
    }


def _launcher_command(plan: Dict[str, Any], job: JobFolder, checkpoint_folder: str) -> Command:
    """The deployed launch script for this host, in the node's environment plus what the operator gave."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED_ENV)}
    env.update(job.take_environment())
    env.update({MARKER: job.id, "NODECTL_JOB_DIR": job.path, "PYTHONUNBUFFERED": "1"})
    if checkpoint_folder:
        env["NODECTL_CHECKPOINT_DIR"] = checkpoint_folder
    workdir = str(plan.get("workdir", ""))
    _add_import_paths(env, job.at("code"), os.path.join(workdir, os.path.dirname(plan["script"])))
    return Command(_launcher_argv(plan, job), env, job.at("code", workdir), job.at("output.log"))


def _add_import_paths(env: Dict[str, str], code: str, script_folder: str) -> None:
    """A script below the project's top finds the project's packages, as if they were installed."""
    if os.path.normpath(script_folder) != ".":
        folders = [code, os.path.join(code, "src"), *env.get("PYTHONPATH", "").split(os.pathsep)]
        env["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder)


def _launcher_argv(plan: Dict[str, Any], job: JobFolder) -> List[str]:
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

"""The life of a job on one host: wait for the others, run the ranks, end them with the first failure anywhere."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from functools import partial
from typing import Any, Dict, List, Optional, Set, Union

from . import black_box, launcher, node_end, shared_memory
from . import heartbeat as hb
from .attempts import Member, Over, placed, plan_of, report
from .clerk import Clerk, News
from .contain import KILL_ROUND_S, Killing
from .evidence import Output, host_at_start
from .failures import bounded, brief, first, first_of_attempt
from .folder import JobFolder, new_files
from .heartbeat import Attempt
from .outputs import Keeper, size
from .postmortem import Postmortem
from .process import exit_status, send
from .ranks import RankWatch
from .rhythm import Monitor

_TICK_S = 0.2
_GATHER_S = 0.05  # heartbeats that arrive within this time are handled together
_PAUSE_S = 2.0  # after a longer pause this process had been stopped itself, and could not hear the others
_LOOK_S = 0.5  # time for reading the processes' maps
_SETTLE_S = 1.0  # after a failure, time for the other hosts to note their own before this host's ranks are ended
_PARTING_S = 0.6  # how long heartbeats go on after all have ended, so that the last one is heard
_WHO_S = 3.0  # time for reading from the disk who asked this process to end
_LEFT_S = 2.0  # time for reading from the disk what the job has left behind
_STOPPED_S = 2.0  # how long a stopped supervisor waits for the others' last heartbeats


class Supervisor:
    """One attempt of a job on this host. Everything that happens is in `step`; the clock is monotonic seconds."""

    def __init__(self, job: JobFolder, member: Optional[Member] = None) -> None:
        self.job = job
        self.member = member or Member(job)
        self.plan = plan_of(self.member.plan, self.member.attempt)
        self.rank = self.member.rank
        self.hosts = self.member.hosts
        self.peers = self.member.peers
        self.state = hb.WAITING if self.plan["rank"] is not None else hb.SPARE
        self.lost: List[int] = []
        self.exit_status: Optional[int] = None
        self.over: Optional[Over] = None
        self.following: Optional[Attempt] = None
        self.ended_at: Optional[float] = None
        self.begun_at = time.time()
        self._log_begin = size(job.at("output.log"))
        self._rested = self.state == hb.SPARE
        self._fit: Optional[str] = None
        self._asked_fit = False
        self._next_beat_s = 0.0
        self._born_s = self._stepped_s = time.monotonic()
        self._ended_s = 0.0
        self._asked_who_s: Optional[float] = None
        self._spawned_s: Optional[float] = None
        self._term_s: Optional[float] = None
        self._end_state = hb.FAILED
        self._signature = ""
        self._launcher, self._launcher_problem = 0, -1
        self._guard_moved_s = self._born_s
        self._killing: Optional[Killing] = None
        self._killed = False
        self._segments: Optional[Set[shared_memory.Segment]] = None
        self._asked_segments_s = 0.0
        self._outputs: Optional[List[str]] = None
        self._doubts = black_box.Doubts()

    def open(self) -> None:
        """Take the port, and go on below a guard, where no guard lives, with the first state; OSError if that fails."""
        if self.member.attempt.number == 1:
            self.member.open()
        if not self.member.guard.lives():
            self.member.be_guarded(launcher.container_end(self.plan, self.job))
        self.containment = self.member.containment
        output = Output(self.job.at("output.log"), self._log_begin)
        at_start = host_at_start(self.job.path, launcher.rank_logs(self.job, self.plan), output)
        # `urgent` brings all events but the heartbeats; `selector` brings both
        self.urgent, self.selector = selectors.DefaultSelector(), selectors.DefaultSelector()
        self.urgent.register(self.member.wake_reader, selectors.EVENT_READ)
        for source in (self.urgent, self.member.mesh.socket):
            self.selector.register(source, selectors.EVENT_READ)
        expected = int(self.plan["nproc_per_node"])
        self.watch = RankWatch(self.job.id, self.containment.started, self.urgent, expected)
        self.keeper = Keeper(self.job)
        self.monitor = Monitor(self.job, time.monotonic())
        self.clerk = Clerk(self.job.write_state, self.member.wake, self._tend)
        self.postmortem = Postmortem(
            self.job, self.plan, at_start, output, self.watch, self.clerk.ask, self.peers.causes
        )
        self.job.write_state(self._state())

    def run(self) -> None:
        """Run until every host has ended the job and knows that this one has, or until another attempt follows."""
        signal.set_wakeup_fd(self.member.wake_writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, lambda *_: self.ask_stop())  # of `jobs stop`
        for number in (signal.SIGTERM, signal.SIGHUP):  # systemd sends both to what is left of a session
            signal.signal(number, self.member.note_term)
        self.clerk.start()
        if self.member.history:
            if not self._rested:
                self.clerk.ask(self._announce)
            attempt, roster = self.member.attempt
            what = f"starts again, attempt {attempt} on {','.join(self.hosts[rank]['name'] for rank in roster)}"
            cause = self.member.history[-1]["cause"]
            self._report(time.monotonic(), "job_restarted", what, cause=cause, attempt=attempt)
        while not self._may_leave(time.monotonic()):
            self._sleep(time.monotonic())
            self.step(time.monotonic())
        self._report_end(time.monotonic())
        self.clerk.close()
        self.watch.close()
        self.selector.close()
        self.urgent.close()
        self.containment.remove()
        if self.over is not None and self.member.guard.is_stopped():
            self.member.guard.kill()  # it has nothing left to guard

    def _tend(self) -> Optional[News]:
        """Keep the account of the output, and tell where it stands still; runs on the clerk's thread."""
        self.keeper.tend()
        if self.state != hb.RUNNING:
            return None
        doubt = self.monitor.look(self.keeper.size, time.monotonic())
        return partial(self._suspect, doubt) if doubt else None

    def _suspect(self, doubt: str) -> None:
        self._doubts.suspect(doubt)
        self._next_beat_s = 0.0

    def _follow_doubts(self, now_s: float) -> None:
        """Have the black box taken where a host suspects a hang and no other tells progress; forget what passed."""
        told, stood_s = self.peers.doubts()
        stood_s = min(stood_s, self.monitor.stood_s(now_s))
        if self._doubts.has_passed(stood_s, now_s):
            self.clerk.ask(partial(black_box.forget, self.job))
        if why := self._doubts.why(told, stood_s, now_s):
            self._take(now_s, black_box.SUSPICION, why)
            what = f"has made no progress for {stood_s:.0f} s"
            self._report(now_s, "job_stalled", what, why, stalled_s=round(stood_s))

    def _take(self, now_s: float, kind: str, why: str) -> None:
        self._doubts.taken_s = now_s
        try:
            self.containment.spared.add(black_box.start(self.job, self.member.attempt.number, kind, why))
        except OSError as error:  # as where no process can be made
            sys.stderr.write(f"the black box could not be taken: {error}\n")

    def _report(self, now_s: float, event: str, what: str, why: str = "", **details: Any) -> None:
        if self.member.reports(now_s):
            self.clerk.ask(partial(report, self.member, event, what, why, **details))

    def _report_end(self, now_s: float) -> None:
        if self.over is None:
            return
        beats = self.peers.beats
        states = {self.state, *(beats[rank].state for rank in self.member.attempt.roster if rank in beats)}
        ended = hb.FINISHED if states == {hb.FINISHED} else hb.FAILED
        state = hb.STOPPED if states & {hb.STOPPED, hb.STOPPING} else ended
        cause = self._record()["cause"] if state == hb.FAILED else None
        self._report(now_s, "job_ended", state, self.over.why, cause=cause, state=state)

    def _announce(self) -> None:
        """Write the line that announces an attempt into the ranks' output; runs on the clerk's thread."""
        number, roster = self.member.attempt
        hosts, cause = ",".join(self.hosts[rank]["name"] for rank in roster), self.member.history[-1]["cause"]
        because = ""
        if cause:
            where = cause["host"] + ("" if cause["rank"] is None else f", rank {cause['rank']}")
            because = f"; the last one failed: {where}: {cause['message']}"
        with open(self.job.at("output.log"), "a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"nodectl: attempt {number} on {hosts}{because}\n")

    def successor(self) -> Optional[Supervisor]:
        """Return the next attempt's supervisor, not opened yet; None if the job is over."""
        if self.following is None:
            return None
        self.member.begin(self.following, self._record())
        return Supervisor(self.job, self.member)

    def ask_stop(self) -> None:
        """End the job, as its operator wishes."""
        self.member.stop_asked = True

    def _ask_who(self, now_s: float) -> None:
        """Find out why this process got a SIGTERM; a disk that hangs is not waited for."""

        def read_who() -> News:
            leaving = node_end.why_asked()
            return lambda: self._leave(leaving)

        if not self.member.terminated or self.member.stop_asked or self.member.leaving:
            return
        if self._asked_who_s is None:
            self._asked_who_s = now_s
            self.clerk.ask(read_who)
        elif now_s - self._asked_who_s > _WHO_S:
            self._leave(node_end.ASKED)

    def _leave(self, leaving: node_end.Leaving) -> None:
        """End this host's part, but not the job, for example at a shutdown: the other hosts may go on without it."""
        if self.over is not None or self.member.leaving:
            return
        self.member.leaving = leaving
        self._fit, self._asked_fit = leaving.message, True
        if not self._rested:
            self.postmortem.note_leaving(*leaving)

    def _sleep(self, now_s: float) -> None:
        waits_s = [self._next_beat_s - now_s]
        if self.state == hb.RUNNING:
            waits_s.append(self.watch.wait_s(now_s))
        if self._killing and not self._killed:
            waits_s.append(KILL_ROUND_S)
        wait_s = max(0.0, min(waits_s))
        gather_s = min(wait_s, _GATHER_S) if self._calm() else 0.0
        if not (gather_s and self.urgent.select(gather_s)):
            self.selector.select(wait_s - gather_s)
        with contextlib.suppress(BlockingIOError):
            self.member.wake_reader.recv(4096)

    def _calm(self) -> bool:
        waits = self.over is not None and not self.peers.all_ended(self._stepped_s)
        return self.state in (hb.RUNNING, hb.SPARE) or waits

    def step(self, now_s: float) -> None:
        """Read the socket, look at processes, decide, and send; silence must be judged after all beats are read."""
        self.member.guard.beat()
        self._extend_leases_after_own_pause(now_s)
        unheard = len(self.peers.unheard())
        for beat in self.member.mesh.receive():
            self.peers.hear(beat, now_s)
        if self.state == hb.WAITING and len(self.peers.unheard()) < unheard:
            self._next_beat_s = now_s  # the sender waits for this host's beat as well
        self._ask_who(now_s)
        self._look(now_s)
        if not self._rested:
            self._decide(now_s)
        for rank in self.peers.newly_lost(now_s):
            self._lose(rank, f"no heartbeat for {self.peers.lease_s:g} s")
        if self._rested and self.over is None:
            self._succeed(now_s)
        self._tell(now_s)
        self._save()

    def _extend_leases_after_own_pause(self, now_s: float) -> None:
        if now_s - self._stepped_s > _PAUSE_S:
            self.peers.pardon(now_s - self._stepped_s)
            self._guard_moved_s = now_s
        self._stepped_s = now_s

    def _look(self, now_s: float) -> None:
        """Note dead ranks before they are reaped here, then the launcher's end."""
        if self._spawned_s is not None and not self._rested:
            self.watch.look(now_s)
            for death in self.watch.deaths(after_stop=self._term_s is not None):
                self.postmortem.note_end(death, now_s)
        self._reap()
        for news in self.clerk.news():
            news()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.containment.spared.discard(pid)
            if pid == self._launcher:
                self._note_launcher_end(status)

    def _note_launcher_end(self, status: int) -> None:
        self.exit_status = exit_status(status)
        problem = os.read(self._launcher_problem, 4096).decode(errors="replace")
        os.close(self._launcher_problem)
        if os.WIFSIGNALED(status):
            self.postmortem.note_killed_launcher(os.WTERMSIG(status))
        elif problem:
            self._fail_to_launch(problem)

    def _fail_to_launch(self, why: object) -> None:
        self.exit_status = launcher.NOT_STARTED
        self.postmortem.fail("launcher", f"{self.plan['launcher']} could not be started: {why}")

    def _decide(self, now_s: float) -> None:
        if self.state in (hb.WAITING, hb.RUNNING):
            self._note_bad_guard(now_s)
        if self.state == hb.WAITING:
            self._decide_waiting(now_s)
        if self.state == hb.RUNNING:
            self._decide_running(now_s)
        if self.state in (hb.ENDING, hb.STOPPING):
            self._decide_ending(now_s)

    def _decide_waiting(self, now_s: float) -> None:
        if self._end_if_told(now_s):
            return
        if not self.peers.unheard():
            self.state, self._spawned_s = hb.RUNNING, now_s
            self.watch.expect(now_s)
            self.clerk.ask(self._read_command)
        elif now_s - self._born_s > float(self.plan["start_deadline_s"]):
            for rank in self.peers.unheard():
                self._lose(rank, "was never heard: its supervisor did not start, or a firewall drops UDP")
        if self.postmortem.failures:
            self._end(now_s, hb.FAILED, settle_s=0)

    def _read_command(self) -> News:
        try:
            command = launcher.command(self.plan, self.job)
        except (OSError, ValueError) as error:
            reason = f"the job's environment could not be read: {error}"
            return lambda: self.postmortem.fail("launcher", reason)
        return lambda: self._launch(command)

    def _launch(self, command: launcher.Command) -> None:
        if self.state != hb.RUNNING:  # the end came first
            self.exit_status = launcher.NOT_STARTED
            return
        try:
            self._launcher, self._launcher_problem = launcher.spawn(command)
        except OSError as error:
            self._fail_to_launch(error)

    def _end_if_told(self, now_s: float) -> bool:
        stops = any(beat.state in (hb.STOPPING, hb.STOPPED) for beat in self.peers.beats.values())
        if self.member.stop_asked or stops:
            self._end(now_s, hb.STOPPED, settle_s=0)
        elif self.peers.has_gone_on():
            self.postmortem.fail("communication", "the other hosts went on without this one, which they had lost")
            self._end(now_s, hb.FAILED, settle_s=0)
        elif self.peers.any_here_in(hb.ENDING, hb.RESTING, hb.FAILED):
            self._end(now_s, hb.FAILED, settle_s=_SETTLE_S)
        return self.state in (hb.STOPPING, hb.ENDING)

    def _decide_running(self, now_s: float) -> None:
        if self._end_if_told(now_s):
            return
        self._follow_doubts(now_s)
        self._note_time(now_s)
        if self.exit_status and not self.postmortem.failures and self.postmortem.explain(now_s):
            self.postmortem.blame_launcher(self.exit_status)
        if self.postmortem.failures:
            settle_s = 0 if self.lost or self.member.leaving else _SETTLE_S
            self._end(now_s, hb.FAILED, settle_s=settle_s)
        elif self.exit_status == 0 and self._kill() and self.postmortem.is_described(now_s):
            self._finish(now_s, hb.FINISHED)

    def _note_time(self, now_s: float) -> None:
        limit_s = float(self.plan.get("time_limit_s") or 0)
        if limit_s and now_s - self.member.born_s >= limit_s:
            self.postmortem.fail("time_limit", f"its time limit of {limit_s:g} s is over")
            self._end(now_s, hb.FAILED, settle_s=0)

    def _note_bad_guard(self, now_s: float) -> None:
        if not self.member.guard.is_stopped():
            self._guard_moved_s = now_s
        elif now_s - self._guard_moved_s > self.peers.lease_s:
            self.member.guard.kill()
        if not self.member.guard.lives():
            self.postmortem.fail("supervisor", "the process that guards the job there was killed or stopped")

    def _kill(self) -> bool:
        if self._killing is None:
            self._killing = Killing(self.containment)
        if not self._killed:
            self._killed = self._killing.round(self._reap)
        return self._killed

    def _end(self, now_s: float, end_state: str, *, settle_s: float) -> None:
        if end_state == hb.FAILED and self.state == hb.RUNNING:
            self._take(now_s, black_box.END, str((first(self.postmortem.failures) or {}).get("message", "")))
        self._end_state = end_state
        self.state = hb.STOPPING if end_state == hb.STOPPED else hb.ENDING
        self._next_beat_s = now_s
        self._term_at_s = now_s + settle_s
        self._asked_segments_s = now_s
        if end_state == hb.FAILED and self._spawned_s is not None:
            self.postmortem.look_at_living()

        def find_segments() -> News:
            segments = self.containment.mapped()  # would stay behind
            return lambda: setattr(self, "_segments", segments)

        self.clerk.ask(find_segments)

    def _decide_ending(self, now_s: float) -> None:
        """Send SIGTERM once the other hosts have had time to note their failures, and SIGKILL after the grace."""
        if self.member.stop_asked and self._end_state != hb.STOPPED:
            self._term_at_s = now_s
        looked = self._segments is not None or now_s - self._asked_segments_s > _LOOK_S
        if self._term_s is None and now_s >= self._term_at_s and looked:
            if self._launcher and self.exit_status is None:
                send(self._launcher, signal.SIGTERM)  # it passes that on to its ranks
            self.postmortem.note_stop(asked=True)
            self._term_s = now_s
        launcher_gone = self._spawned_s is None or self.exit_status is not None
        overdue = self._term_s is not None and now_s - self._term_s > float(self.plan["grace_s"])
        if launcher_gone or overdue:
            if self._term_s is None:
                self.postmortem.note_stop(asked=False)
                self._term_s = now_s
            explains = self._end_state == hb.FAILED and self._spawned_s is not None
            if self._kill() and (not explains or self.postmortem.explain(now_s)):
                self.clerk.ask(partial(shared_memory.remove, self._segments or set()))
                self._finish(now_s, self._end_state)

    def _finish(self, now_s: float, state: str) -> None:
        self.state, self._rested = state, True
        self._ended_s, self.ended_at = now_s, time.time()
        self._next_beat_s = now_s
        if state == hb.FAILED and self.member.succession.possible:
            self.state = hb.RESTING

    def _succeed(self, now_s: float) -> None:
        if self.member.stop_asked:
            self.state = hb.STOPPED
        has_failed = self.peers.lost or self.peers.failures or self.peers.any_here_in(hb.RESTING)
        if not self._asked_fit and self.member.succession.possible and (self.state == hb.RESTING or has_failed):
            self._asked_fit = True
            self.clerk.ask(self._test)
        follows = self._follows(now_s)
        if isinstance(follows, Over):
            self.over, self.state = follows, follows.state
            self._ended_s, self.ended_at = now_s, self.ended_at or time.time()
            self._next_beat_s = now_s
            self.clerk.ask(self._look_at_leftovers)
        self.following = follows if isinstance(follows, Attempt) else None

    def _look_at_leftovers(self) -> News:
        begun_at = float(self.member.history[0]["begun_at"]) if self.member.history else self.begun_at
        files = new_files(self.job.at("code"), begun_at)
        return lambda: setattr(self, "_outputs", files)

    def _follows(self, now_s: float) -> Union[Over, Attempt, None]:
        """Decide what follows; a host that leaves does not decide, and goes when the others know that it is not fit."""
        if self.member.leaving is None or not self.member.succession.possible or self.member.stop_asked:
            silent_s = self.peers.silent_s(now_s)
            return self.member.succession.decide(self._beat(now_s), self.peers.beats, silent_s, now_s)
        if now_s - max(self._ended_s, self._asked_who_s or 0.0) < _PARTING_S:
            return None
        return Over(hb.FAILED, f"not here any more: {self.member.leaving.message}", told=self.rank == hb.LEADER)

    def _test(self) -> News:
        """Find out whether this host can take part again; runs on the clerk's thread."""
        reason = node_end.unfit(self.plan)
        return lambda: setattr(self, "_fit", self.member.leaving.message if self.member.leaving else reason)

    def _lose(self, rank: int, why: str) -> None:
        self.lost.append(rank)
        if self.state in (hb.SPARE, hb.STOPPING, hb.STOPPED):  # a host that is asked to end may be gone first
            return
        self.postmortem.fail("host_lost", f"{self.hosts[rank]['name']}: {why}", lost=rank)

    def _tell(self, now_s: float) -> None:
        if now_s < self._next_beat_s:
            return
        self._next_beat_s = now_s + (float(self.plan["beat_s"]) if self._calm() else _TICK_S)
        self.watch.follow_groups()
        if self.over is None or self.over.told:
            self.member.send(self._beat(now_s))

    def _beat(self, now_s: float) -> hb.Beat:
        over = self.over.why if self.over else None
        cause = self.postmortem.told(self.peers.failures.values())
        first_failure = None if cause is None else brief(cause)
        return hb.Beat(
            self.rank, 0, self.state, first_failure, self.member.attempt, over, self._fitness(now_s),
            self._doubts.suspicions, round(self.monitor.stood_s(now_s), 1),
        )  # fmt: skip

    def _fitness(self, now_s: float) -> Optional[str]:
        """Return why this host cannot take part in another attempt, "" if it can, None if that is not known yet."""
        if self.peers.silent_s(now_s).get(hb.LEADER, 0.0) > self.peers.lease_s:
            return f"{self.hosts[self.rank]['name']} does not hear {self.hosts[hb.LEADER]['name']}"
        return self._fit

    def _may_leave(self, now_s: float) -> bool:
        if self.over is None:
            return self.following is not None
        waited_s = now_s - self._ended_s
        if self._outputs is None and waited_s < _LEFT_S:
            return False
        if not self.over.told or (self.state == hb.STOPPED and waited_s > _STOPPED_S):
            return True
        return self.peers.all_ended(now_s) and waited_s > (_PARTING_S if self.peers.ranks else 0)

    def _save(self) -> None:
        state = self._state()
        signature = repr(state)
        if signature != self._signature:
            self._signature = signature
            self.clerk.save(state)

    def _state(self) -> Dict[str, Any]:
        return {
            **self.member.identity,
            "state": self.state,
            "final": self.over is not None,
            "containment": self.containment.record(),
            "ended_at": self.ended_at,
            "exit_status": self.exit_status,
            "failures": bounded(self.postmortem.failures),
            "ends": list(self.postmortem.ends),
            "living": list(self.postmortem.living),
            "xids": list(self.postmortem.xids),
            "flight": dict(self.postmortem.flight),
            "lost": list(self.lost),
            "heard": {str(rank): failure for rank, failure in self.peers.failures.items()},
            "attempt": self.member.attempt.number,
            "roster": list(self.member.attempt.roster),
            "attempts": self.member.history,
            "no_restart": self.over.why if self.over else "",
            **({"outputs": self._outputs} if self._outputs else {}),
        }

    def _record(self) -> Dict[str, Any]:
        number, roster = self.member.attempt
        failures = {**self.peers.failures, self.rank: self.postmortem.told(self.peers.failures.values())}
        causes = [placed(failure, rank, self.hosts) for rank, failure in failures.items() if failure]
        return {
            "number": number,
            "hosts": [self.hosts[rank]["name"] for rank in roster],
            "begun_at": self.begun_at,
            "ended_at": self.ended_at,
            "log_begin": self._log_begin,
            "cause": first_of_attempt(causes),
        }

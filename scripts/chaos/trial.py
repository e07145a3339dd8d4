"""One job that is to meet one event: launched, brought to the phase, watched to its end."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts.chaos.cases import LEASE_S, Event, Moment, Phase
from scripts.chaos.hosts import CHECKPOINTS, LAUNCHER, STATE, VENV, Lab, LabHost, Seen, freeze, read_json
from scripts.chaos.reference import steps_in

_POLL_S = 0.25
# for what is not promised: until a moment comes, or a program of the operator's ends
_PATIENCE_S, _MORE_S = 60.0, 15.0
_STEPS_BEFORE, _STEPS_AFTER = 12, 5
_STARTING = re.compile(r"job (\S+): starting on")
_STARTED = " runs on "
_BURST_S = 0.02
_PROJECT = "project"


class CaseError(Exception):
    """The case did not come as far as it had to."""


class TooLateError(CaseError):
    """The job's phase that was to be disturbed is over."""


class Slowness:
    """How much longer this machine takes for a piece of work than it computes: 1 when nobody else works here."""

    def __init__(self) -> None:
        self._ratios: list[float] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            begun_s, used_s = time.perf_counter(), time.thread_time()
            while time.thread_time() - used_s < _BURST_S:
                pass
            self._ratios.append((time.perf_counter() - begun_s) / (time.thread_time() - used_s))
            time.sleep(1)

    def begin(self) -> None:
        """Count from here on."""
        self._ratios = self._ratios[-2:]

    @property
    def factor(self) -> float:
        """The mean since `begin`, at least 1."""
        ratios = self._ratios or [1.0]
        return max(1.0, sum(ratios) / len(ratios))


class Trial:
    """`victim` is the second host, whose rank is 1; `job_id` is known once the launch has said it."""

    def __init__(self, lab: Lab, event: Event, phase: Phase, folder: Path, slowness: Slowness) -> None:
        self.lab, self.event, self.phase, self.folder, self.slowness = lab, event, phase, folder, slowness
        self.job_id = ""
        self.terminal = -1
        self.launch: subprocess.Popen[bytes] | None = None
        self.others: list[subprocess.Popen[bytes]] = []
        self.kept: dict[str, Any] = {}  # what an event's act leaves for its undo

    @property
    def victim(self) -> LabHost:
        """Return the host that the event is for."""
        return self.lab.hosts[1]

    @property
    def up(self) -> list[LabHost]:
        """Return the hosts that are up."""
        return [host for host in self.lab.hosts if host.up]

    def begin(self) -> None:
        """Launch it from a terminal of its own; nodectl's words are kept in the case's folder."""
        self.event.prepare(self)
        project = self.folder / _PROJECT
        project.mkdir()
        script = project / "train.py"
        script.write_text(Path(__file__).with_name("train.py").read_text())
        options = [*self.options(), *self.event.options.get(self.phase, ())]
        self.launch = self.operate(
            "launch", "launch", *options, str(script), "--", *self.event.args.get(self.phase, ()), terminal=True
        )
        self.wait(self._has_said_id, "the launch did not say its id")

    def options(self) -> list[str]:
        """nodectl's, of every launch."""
        own = ["-e", f"launcher_path={LAUNCHER}", "--venv", VENV, "--nproc-per-node", "1"]
        return [*own, "--lease", f"{LEASE_S:g}", "--checkpoint", CHECKPOINTS]

    def _has_said_id(self) -> bool:
        match = _STARTING.search(self.said("launch"))
        if match:
            self.job_id = match[1]
        elif self.launch is not None and self.launch.poll() is not None:
            raise CaseError(f"the launch ended with {self.launch.returncode} before the job was there")
        return bool(self.job_id)

    def operate(self, name: str, *args: str, terminal: bool = False, operator: str = "root") -> subprocess.Popen[bytes]:
        """Another shell of an operator; what it says goes to NAME.out of the case's folder."""
        argv = self.lab.argv(*args)
        before: Callable[[], None] | None = None
        if terminal:
            self.terminal, inner = pty.openpty()
            before = _own_session
        with (self.folder / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                argv,
                stdin=inner if terminal else subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**self.lab.environment, "SUDO_USER": operator, "PYTHONFAULTHANDLER": "1"},
                preexec_fn=before,
            )
        if terminal:
            os.close(inner)
        self.others.append(process)
        return process

    def said(self, name: str) -> str:
        """Return what that shell has shown until now."""
        path = self.folder / f"{name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def states(self) -> dict[str, dict[str, Any]]:
        """Return, by host that is up, what its supervisor has written."""
        found = {host.name: read_json(self.place(host) / "state.json") for host in self.up}
        return {name: state for name, state in found.items() if state is not None}

    def place(self, host: LabHost) -> Path:
        """Return the job's folder on a host."""
        return host.root / STATE / "jobs" / self.job_id

    def of_job(self, host: LabHost) -> list[Seen]:
        """Return the processes of the job on a host."""
        return [seen for seen in host.processes() if seen.environ.get("NODECTL_JOB_ID") == self.job_id]

    def ranks(self, hosts: Sequence[LabHost] = ()) -> list[Seen]:
        """Living ranks, on all hosts if none is named."""
        return [seen for host in hosts or self.lab.hosts for seen in self.of_job(host) if seen.rank is not None]

    def rank(self, host: LabHost | None = None) -> Seen:
        """Return the rank of the victim, or of another host."""
        return self._one(host, lambda seen: seen.rank is not None, "rank")

    def agent(self) -> Seen:
        """Return the victim's torchrun."""
        return self._one(None, lambda seen: seen.is_agent, "torchrun")

    def keepers(self) -> list[Seen]:
        """Return nodectl's processes that hold the job, or take it in, on all hosts."""
        return [
            seen
            for host in self.up
            for seen in host.processes()
            if self.job_id in seen.argv and "jobs.control" in " ".join(seen.argv)
        ]

    def supervisor(self) -> Seen:
        """Return the victim's."""
        return self._keeper("pid", "supervisor")

    def guard(self) -> Seen:
        """Return the victim's."""
        return self._keeper("guard", "guard")

    def _keeper(self, key: str, what: str) -> Seen:
        state = self.states().get(self.victim.name, {})
        number = int(state.get(key) or state.get("containment", {}).get(key, 0))
        found = [seen for seen in self.victim.processes() if seen.inner == number]
        if not found:
            raise CaseError(f"{self.victim.name} has no {what}")
        return found[0]

    def _one(self, host: LabHost | None, fits: Callable[[Seen], bool], what: str) -> Seen:
        host = host or self.victim
        found = [seen for seen in self.of_job(host) if fits(seen)]
        if not found:
            raise CaseError(f"{host.name} has no {what}")
        return min(found, key=lambda seen: seen.inner)

    def output(self, tail_bytes: int = 4 << 20) -> str:
        """Return the end of what ranks have written on all hosts that are up, and of what the launch has shown."""
        paths = [path for host in self.up for path in sorted((self.place(host) / "ranks").rglob("std*.log"))]
        return "\n".join(_tail(path, tail_bytes) for path in (self.folder / "launch.out", *paths))

    def step(self) -> int:
        """Return the newest that rank 0 has told."""
        return max((number for number, _ in steps_in(self.output(1 << 14))), default=0)

    def reach(self) -> None:
        """Bring the job to the phase that the event is to meet."""
        if self.phase is Phase.STARTING:
            self._reach_moment()
            return
        self.wait(lambda: self.step() >= _STEPS_BEFORE, "the ranks did not come to their steps")
        if self.phase is Phase.STOPPING:
            self.stop()

    def stop(self) -> None:
        """Ask for the job's end from another shell, and wait until a host ends it."""
        self.operate("stop", "jobs", "stop", self.job_id)
        self.wait(lambda: self.is_in("stopping", "stopped"), "the job is not being stopped")

    def _reach_moment(self) -> None:
        if self.event.moment is Moment.SAID and _STARTED in self.said("launch"):
            raise TooLateError("the start was complete before this machine came to disturb it")
        if self.event.moment is Moment.SUPERVISED:
            self.wait(lambda: len(self.states()) == len(self.up), "the supervisors are not there")
        if self.event.moment is Moment.SPAWNED:
            self.wait(lambda: bool(self.ranks([self.victim])), "the victim's rank is not there")

    def is_in(self, *wanted: str) -> bool:
        """Return whether some host is in one of these states."""
        return any(state["state"] in wanted for state in self.states().values())

    @property
    def has_ended(self) -> bool:
        """On every host that is up."""
        states = self.states().values()
        return all(state["final"] for state in states)

    def wait(
        self, condition: Callable[[], bool], words: str, within_s: float = _PATIENCE_S, more_s: float = _MORE_S
    ) -> None:
        """Wait until it holds; CaseError after that time, and as much more as this machine is slow."""
        begun_s = time.monotonic()
        while not condition():
            if time.monotonic() - begun_s > within_s + more_s * self.slowness.factor:
                raise CaseError(f"{words} within {time.monotonic() - begun_s:.0f} s")
            time.sleep(_POLL_S)

    def go_on(self) -> None:
        """Let the job make more steps, then ask it to finish."""
        before = self.step()
        self.wait(lambda: self.step() >= before + _STEPS_AFTER, f"the job stands still at step {before}")
        self.finish()

    def finish(self) -> None:
        """Let the job end by itself, and wait for that."""
        self.lab.hosts[int(self.kept.get("first", 0))].ask("finish")
        self.wait(lambda: self.has_ended, "the job did not finish")

    def hear_out(self, within_s: float) -> int | None:
        """Return the launch's exit status, once it has ended by itself; None if it did not."""
        if self.launch is None:
            return None
        try:
            return self.launch.wait(within_s + _MORE_S * self.slowness.factor)
        except subprocess.TimeoutExpired:
            self.launch.send_signal(signal.SIGABRT)  # its threads' stacks go to what it has said
            self.launch.wait()
            return None

    def close(self) -> None:
        """End what is left of the operator's shells, and let everything go on."""
        for process in self.others:
            if process.poll() is None:
                process.kill()
            process.wait()
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1
        freeze(self.up, signal.SIGCONT)

    def keep_evidence(self) -> None:
        """Keep what the hosts know, beside what the operator was told."""
        for host in self.up:
            for name in ("state.json", "supervisor.log", "output.log", "plan.json"):
                with contextlib.suppress(OSError):
                    (self.folder / f"{host.name}-{name}").write_bytes((self.place(host) / name).read_bytes()[-200_000:])

    def why(self) -> dict[str, Any] | None:
        """Return the one job as `jobs why` tells it; None if it knows no such job."""
        done = self.lab.on_hosts("--output", "json", "jobs", "why", self.job_id)
        (self.folder / "why.json").write_text(done.stdout + done.stderr)
        try:
            found: dict[str, Any] = json.loads(done.stdout)["jobs"][0]
        except (ValueError, KeyError, IndexError):
            return None
        return found


def _tail(path: Path, size_bytes: int) -> str:
    """Whole lines; nothing if the file is gone."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size_bytes))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text if len(text) < size_bytes else text.partition("\n")[2]


def _own_session() -> None:
    """In the child: its standard input becomes the terminal that its session hangs on."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

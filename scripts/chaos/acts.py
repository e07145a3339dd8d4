"""How each event is made to happen to a trial's job, and how it is undone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from scripts.chaos.cases import LEASE_S, REACTION_S, SILENT_S, Phase
from scripts.chaos.hosts import Seen, freeze
from scripts.chaos.trial import CaseError, Trial

Act = Callable[[Trial], None]
_MEMORY = Path("/sys/fs/cgroup/memory")
_ROOM_BYTES = 600 << 20
_BRIEF_S = 2.0
_LONGER_S = LEASE_S + 3.0
_CTRL_C = b"\x03"
_STEP_S = 30
_CLOCK = "run/nodectl-chaos-clock"
_SHIM = "opt/nodectl-chaos/clock.so"
# what every program of the host takes for the time of day: the kernel's own, and so many seconds
_SHIM_SOURCE = f"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static time_t ahead(void) {{ return access("/{_CLOCK}", F_OK) == 0 ? {_STEP_S} : 0; }}
int clock_gettime(clockid_t clock, struct timespec *now) {{
    int done = syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return done;
}}
int gettimeofday(struct timeval *now, void *zone) {{
    int done = syscall(SYS_gettimeofday, now, zone);
    if (done == 0 && now) now->tv_sec += ahead();
    return done;
}}
time_t time(time_t *kept) {{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept) *kept = now.tv_sec;
    return now.tv_sec;
}}
"""


def send(who: Callable[[Trial], Seen], number: int) -> Act:
    """Return a signal for one process of the victim."""
    return lambda trial: who(trial).send(number)


def both_killed(trial: Trial) -> None:
    """Supervisor and guard, so that neither can end what the other has left."""
    for seen in [trial.guard(), trial.supervisor()]:
        seen.send(signal.SIGKILL)


def sessions_killed(trial: Trial) -> None:
    """Every sshd of every host but its PID 1, which is the host itself here."""
    for host in trial.up:
        for seen in host.processes():
            if seen.pid != host.pid and seen.argv and seen.argv[0].startswith("sshd"):
                seen.send(signal.SIGKILL)


def operator_signal(number: int) -> Act:
    """For the program at the operator's: the stop under way, else the launch."""

    def act(trial: Trial) -> None:
        process = trial.others[-1]
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)

    return act


def start_killed(trial: Trial) -> None:
    """Kill the launch as soon as its id was said; what was complete by then goes on, and is stopped here."""
    operator_signal(signal.SIGKILL)(trial)
    trial.wait(lambda: not trial.keepers() or trial.is_in("running"), "supervisors wait for others for ever")
    if trial.is_in("running"):
        trial.stop()


def terminal_gone(trial: Trial) -> None:
    """Close the window of the launch."""
    os.close(trial.terminal)
    trial.terminal = -1


def ctrl_c(trial: Trial) -> None:
    """Typed in the terminal of the launch."""
    os.write(trial.terminal, _CTRL_C)


def ctrl_c_twice(trial: Trial) -> None:
    """Interrupt twice, the second time within the two seconds that the first one gives."""
    ctrl_c(trial)
    if trial.phase is Phase.RUNNING:
        trial.wait(lambda: "Ctrl-C again" in trial.said("launch"), "the first Ctrl-C was not heard")
    ctrl_c(trial)


def all_frozen(trial: Trial) -> None:
    """Everything on all hosts, for longer than the lease."""
    freeze(trial.up, signal.SIGSTOP)
    time.sleep(_LONGER_S)
    freeze(trial.up, signal.SIGCONT)


def host_frozen(trial: Trial) -> None:
    """Everything on the victim, until the others have ended, or would have."""
    freeze([trial.victim], signal.SIGSTOP)
    others = [host for host in trial.up if host is not trial.victim]
    try:
        if trial.phase is not Phase.STOPPING:
            trial.wait(lambda: not trial.ranks(others), "the other hosts do not miss it", SILENT_S, REACTION_S)
        else:
            time.sleep(_LONGER_S)
    finally:
        freeze([trial.victim], signal.SIGCONT)


def fault(kind: str, place: int = 1) -> Act:
    """One of the lab's own."""
    return lambda trial: trial.lab.break_(kind, trial.lab.hosts[place])


def healed(trial: Trial) -> None:
    """All faults of the lab."""
    trial.lab.heal()


def briefly_cut(trial: Trial) -> None:
    """For less than the lease."""
    trial.lab.break_("link-down", trial.victim)
    time.sleep(_BRIEF_S)
    trial.lab.heal()


def deafened(trial: Trial) -> None:
    """Drop all that comes to the victim, which is still heard."""
    trial.lab.deafen(trial.victim)


def let_hear(trial: Trial) -> None:
    """Undo it."""
    trial.lab.let_hear(trial.victim)


def host_gone(trial: Trial) -> None:
    """Its power is cut."""
    os.kill(trial.victim.pid, signal.SIGKILL)


def lab_down(trial: Trial) -> None:
    """All hosts at once, with their network."""
    trial.lab.nodectl("lab", "down", "--name", trial.lab.folder.name)


def disk_full(trial: Trial) -> None:
    """On the first host, whose rank saves; the space for a checkpoint that was there goes with it."""
    trial.lab.break_("disk-full", trial.lab.hosts[0])


def no_memory_groups() -> str:
    """Why no memory can be limited here."""
    return "" if (_MEMORY / "memory.limit_in_bytes").exists() else "no memory control groups of version 1"


def out_of_memory(trial: Trial) -> None:
    """Put the victim's rank into a group with less memory than it takes."""
    group = _group()
    group.mkdir(exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(str(_ROOM_BYTES if trial.phase is not Phase.STARTING else 40 << 20))
    (group / "cgroup.procs").write_text(str(trial.rank().pid))
    trial.victim.ask("eat")


def memory_back(_: Trial) -> None:
    """Remove the group, which is empty."""
    with suppress(OSError):
        _group().rmdir()


def _group() -> Path:
    return _MEMORY / f"nodectl-chaos-{os.getpid()}"


def no_compiler() -> str:
    """Why no clock can be stepped for a host alone."""
    return "" if shutil.which("cc") else "no C compiler for a clock of a host's own"


def own_clock(trial: Trial) -> None:
    """Programs that start on the victim from now on ask a clock of its own."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "clock.c"), Path(folder, "clock.so")
        source.write_text(_SHIM_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", made, source], check=True)
        place = trial.victim.root / _SHIM
        place.write_bytes(made.read_bytes())
    (trial.victim.root / "etc/ld.so.preload").write_text(f"/{_SHIM}\n")


def clock_stepped(trial: Trial) -> None:
    """Set the victim's clock half a minute ahead; then kill the last host's rank."""
    (trial.victim.root / _CLOCK).touch()
    time.sleep(_BRIEF_S)
    if trial.phase is not Phase.STOPPING:
        trial.rank(trial.lab.hosts[2]).send(signal.SIGKILL)


def clock_back(trial: Trial) -> None:
    """Set the clock back, for programs that start later, too."""
    for name in (_CLOCK, "etc/ld.so.preload"):
        (trial.victim.root / name).unlink(missing_ok=True)


def launched_again(trial: Trial) -> None:
    """Another job of the same script, from another project, on the same hosts; it is awaited."""
    project = trial.folder / "other"
    project.mkdir()
    script = project / "train.py"
    script.write_text((trial.folder / "project" / "train.py").read_text())
    other = trial.operate("other", "launch", *trial.options(), str(script), "--", "--steps", "5")
    if other.wait(90 + 15 * trial.slowness.factor) != 0:
        raise CaseError(f"the other launch ended with {other.returncode}: {trial.said('other')[-300:]}")


def stopped_by_two(trial: Trial) -> None:
    """Two shells of two people at the same moment."""
    people = [trial.operate(f"stop-{name}", "jobs", "stop", trial.job_id, operator=name) for name in ("ann", "bob")]
    trial.wait(lambda: trial.is_in("stopping", "stopped"), "the job is not being stopped")
    trial.kept["people"] = people


def two_heard(trial: Trial) -> None:
    """Both shells end well, and one of the two is told as who it was."""
    for process in trial.kept.pop("people", ()):
        if process.wait(30 + 10 * trial.slowness.factor) != 0:
            raise CaseError(f"a stop ended with {process.returncode}")


def stopped(trial: Trial) -> None:
    """Stop the job by its operator; in a stop under way a second time."""
    trial.operate("stop-again", "jobs", "stop", trial.job_id)
    trial.wait(lambda: trial.is_in("stopping", "stopped"), "the job is not being stopped")


def asks_for(what: str) -> Act:
    """Return an act that the victim's script does; in a stop it does it by itself (train.py)."""

    def act(trial: Trial) -> None:
        if trial.phase is Phase.RUNNING:
            trial.victim.ask(what)

    return act


def daemon_and_killed(trial: Trial) -> None:
    """Kill a rank that has left a daemon behind; a job that runs or is stopped ends in good order."""
    asks_for("daemon")(trial)
    if trial.phase is Phase.STARTING:
        trial.wait(lambda: len(_daemons(trial)) > 0, "there is no daemon")
        trial.rank().send(signal.SIGKILL)


def _daemons(trial: Trial) -> list[Seen]:
    return [seen for seen in trial.of_job(trial.victim) if any("time.sleep(600)" in word for word in seen.argv)]


def state_damaged(trial: Trial) -> None:
    """Empty the victim's state file and kill its supervisor and guard; then stop the job."""
    both = [trial.guard(), trial.supervisor()]
    for seen in both:
        seen.send(signal.SIGSTOP)
    (trial.place(trial.victim) / "state.json").write_text("")
    trial.operate("stop-damaged", "jobs", "stop", trial.job_id)
    trial.wait(lambda: trial.is_in("stopping", "stopped"), "the job is not being stopped")
    trial.kept["both"] = both

"""The events, each with what is promised of it in every phase."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import replace

from scripts.chaos import acts
from scripts.chaos.cases import SILENT_S, STOP_S, TOLD_S, Event, Expect, Moment, Phase
from scripts.chaos.trial import Trial

_S, _R, _T, _A = Phase.STARTING, Phase.RUNNING, Phase.STOPPING, Phase.RESTARTED
_GLOO_S = 6.0  # of a collective, where ranks are to wait in vain
_SECOND_CTRL_C_S = 2.0
_IMPORT_S = 10.0

# words of docs/jobs.md
_RANK_DIES = "its host tells the others at once; all get SIGTERM after 1 s, SIGKILL 3 s later"
_SILENT = "every other host ends its ranks; a host that was cut off does the same to itself"
_GUARDED = "the other one ends the ranks and writes why; the job fails"
_BOTH_KILLED = "If both are killed, torchrun and its ranks die with them"
_STOP = "SIGTERM to the launcher, 3 s of grace, then SIGKILL; works without a living supervisor too"
_OUTLIVES = "closing the terminal, losing the connection or killing nodectl changes nothing"
_UNDONE = "Ctrl-C, SIGTERM, SIGHUP or an error before the start is complete undo it on all"
_START_KILLED = "a supervisor that does not hear all others within 30 s ends"
_CTRL_C = "Ctrl-C stops the job on all hosts after two seconds; a second Ctrl-C within them leaves it running"
_COMES_BACK = "ends with the loss of an undisturbed run if it saves all of its state"
_LEFT_BEHIND = "processes that ranks left behind are killed"
_PAUSED = "everything is stopped and goes on"
_NOT_IN_COLLECTIVE = "the rank that was not in a collective then is named"
_KERNEL = "that the memory killer came is told as *perhaps*"
_DISK = "A supervisor lives on without a disk"
_CLOCKS = "a cause on a host that had already heard of another host's cause is later"
_TWICE = "Stopping twice, or while another cleans, does no harm"
_SPARE = "the place of a lost or unfit host goes to a spare"
_LIMIT = "at most 1024 MiB of it on each host"
_DAMAGED = "A job whose state is damaged can still be stopped and removed"
_ALL_GONE = "end when no host has\nanswered for a minute"
_LEASE = "a host is silent for the lease"
_OWN_PORTS = "Jobs on the same hosts do not meet"

_STOPS = Expect(_STOP, ("stopped",), within_s=STOP_S)


def _dies(
    *classes: str, promise: str = _RANK_DIES, within_s: float = TOLD_S, host: int = 1, rank: int | None = 1
) -> Expect:
    """Return the promise that the job fails, and that the cause is found."""
    return Expect(promise, ("failed",), classes, host, rank, within_s)


def _goes_on(promise: str, *, exits: tuple[int, ...] | None = (0,)) -> Expect:
    """Return the promise that the job does not end by this, and later does by itself."""
    return Expect(promise, ("finished",), exits=exits)


def _stops_or_dies(like: Expect) -> Expect:
    """Return the promise of a stop of which a host cannot be told: it ends as without, and which came first is said."""
    exits = None if like.exits is None else (1, 3)
    return replace(like, states=("stopped", "failed"), exits=exits)


def _comes_back(like: Expect, promise: str = _COMES_BACK) -> Expect:
    """Return the promise that the attempt ends as without restarts, and that the next one brings the job to its end."""
    return replace(like, promise=promise, states=("finished",), exits=(0,))


def _in_all(expect: Expect, stopping: Expect = _STOPS, restarted: Expect | None = None) -> Mapping[Phase, Expect]:
    """Return the promises by phase; while a job starts and while it runs they are the same."""
    more = {} if restarted is None else {_A: restarted}
    return {_S: expect, _R: expect, _T: stopping, **more}


def _everywhere(*words: str) -> Mapping[Phase, tuple[str, ...]]:
    return dict.fromkeys(Phase, words)


_RESTART = {_A: ("--restarts", "1")}
_SPARE_OPTIONS = {_A: ("--spares", "1")}
_KILLED = _dies("killed_from_outside")
_LAUNCHER_KILLED = _dies("launcher_killed", rank=None)
_SUPERVISOR = _dies("supervisor", promise=_GUARDED, within_s=SILENT_S, rank=None)
_FROZEN_SUPERVISOR = _dies("supervisor", promise=_GUARDED, within_s=SILENT_S, rank=None)
_GUARD = _dies("supervisor", promise=_GUARDED, rank=None)
_FROZEN_GUARD = _dies("supervisor", promise=_GUARDED, within_s=SILENT_S, rank=None)
_BOTH = replace(_dies("supervisor", promise=_BOTH_KILLED, within_s=SILENT_S, rank=None), keeps=("shared memory",))
_LOST = _dies("host_lost", promise=_SILENT, within_s=SILENT_S, rank=None)
_LOST_FROM_VIEW = Expect(_SILENT, ("failed",), ("host_lost",), 1, None, SILENT_S, (1, 3), 60.0)
_MEMORY = _dies("host_out_of_memory", promise=_KERNEL)
_UNDONE_START = Expect(_UNDONE, ("undone",), within_s=STOP_S + TOLD_S, exits=(130,))
_STOPPED_QUIETLY = Expect(_STOP, ("stopped",), within_s=STOP_S, exits=None)
_STOPPED_OR_UNSEEN = Expect(_SILENT, ("stopped", "failed"), ("host_lost", "link"), 1, None, SILENT_S, (1, 3), 60.0)

EVENTS = (
    Event(
        "rank-killed",
        "SIGKILL of a rank",
        acts.send(Trial.rank, signal.SIGKILL),
        _in_all(_KILLED, restarted=_comes_back(_KILLED)),
        options=_RESTART,
    ),
    Event(
        "agent-killed",
        "SIGKILL of torchrun",
        acts.send(Trial.agent, signal.SIGKILL),
        _in_all(_LAUNCHER_KILLED, restarted=_comes_back(_LAUNCHER_KILLED)),
        options=_RESTART,
    ),
    Event(
        "supervisor-killed",
        "SIGKILL of a supervisor",
        acts.send(Trial.supervisor, signal.SIGKILL),
        _in_all(_SUPERVISOR, _stops_or_dies(_SUPERVISOR), _comes_back(_SUPERVISOR, _SPARE)),
        options=_SPARE_OPTIONS,
    ),
    Event(
        "guard-killed",
        "SIGKILL of a supervisor's guard",
        acts.send(Trial.guard, signal.SIGKILL),
        _in_all(_GUARD, _stops_or_dies(_GUARD), _comes_back(_GUARD)),
        options=_RESTART,
    ),
    Event(
        "both-killed",
        "SIGKILL of supervisor and guard",
        acts.both_killed,
        _in_all(_BOTH, _stops_or_dies(_BOTH)),
    ),
    Event(
        "sshd-killed",
        "SIGKILL of all SSH sessions on all hosts",
        acts.sessions_killed,
        _in_all(_goes_on(_OUTLIVES), _STOPPED_QUIETLY),
    ),
    Event(
        "nodectl-killed",
        "SIGKILL of nodectl",
        acts.operator_signal(signal.SIGKILL),
        {_S: _goes_on(_OUTLIVES, exits=None), _R: _goes_on(_OUTLIVES, exits=None), _T: _STOPPED_QUIETLY},
    ),
    Event(
        "start-killed",
        "SIGKILL of nodectl when it has just said the job's id",
        acts.start_killed,
        {_S: Expect(_START_KILLED, ("undone", "failed", "stopped"), within_s=30.0 + TOLD_S, exits=None)},
        moment=Moment.SAID,
    ),
    Event(
        "terminal-gone",
        "nodectl's terminal is closed (SIGHUP)",
        acts.terminal_gone,
        {_S: _goes_on(_OUTLIVES, exits=None), _R: _goes_on(_OUTLIVES, exits=None), _T: _STOPPED_QUIETLY},
    ),
    Event(
        "start-hung-up",
        "nodectl's terminal is closed when it has just said the job's id",
        acts.terminal_gone,
        {_S: Expect(_UNDONE, ("undone",), within_s=STOP_S + TOLD_S, exits=None)},
        moment=Moment.SAID,
    ),
    Event(
        "ctrl-c",
        "Ctrl-C in the launch's terminal",
        acts.ctrl_c,
        {
            _S: _UNDONE_START,
            _R: Expect(_CTRL_C, ("stopped",), within_s=_SECOND_CTRL_C_S + STOP_S),
            _T: _STOPPED_QUIETLY,
        },
        moment=Moment.SAID,
    ),
    Event(
        "ctrl-c-twice",
        "Ctrl-C twice",
        acts.ctrl_c_twice,
        {_S: _UNDONE_START, _R: _goes_on(_CTRL_C, exits=(130,)), _T: _STOPPED_QUIETLY},
        moment=Moment.SAID,
    ),
    Event(
        "rank-stopped",
        "SIGSTOP of a rank",
        acts.send(Trial.rank, signal.SIGSTOP),
        {
            **_in_all(_dies("stopped", promise=_NOT_IN_COLLECTIVE, within_s=_GLOO_S + TOLD_S)),
            # the others have to come to the collective first
            _S: _dies("stopped", promise=_NOT_IN_COLLECTIVE, within_s=_IMPORT_S + _GLOO_S + TOLD_S),
        },
        args=_everywhere("--timeout", f"{_GLOO_S:g}"),
    ),
    Event(
        "supervisor-stopped",
        "SIGSTOP of a supervisor",
        acts.send(Trial.supervisor, signal.SIGSTOP),
        _in_all(_FROZEN_SUPERVISOR, _stops_or_dies(_FROZEN_SUPERVISOR)),
    ),
    Event(
        "guard-stopped",
        "SIGSTOP of a guard",
        acts.send(Trial.guard, signal.SIGSTOP),
        _in_all(_FROZEN_GUARD, _stops_or_dies(_FROZEN_GUARD)),
    ),
    Event(
        "host-frozen",
        "SIGSTOP of everything on a host, for longer than the lease",
        acts.host_frozen,
        _in_all(
            _dies("host_lost", promise=_SILENT, within_s=SILENT_S, rank=None),
            _stops_or_dies(_LOST),
        ),
    ),
    Event(
        "all-frozen",
        "SIGSTOP of everything on all hosts, for longer than the lease",
        acts.all_frozen,
        _in_all(_goes_on(_PAUSED), _STOPPED_QUIETLY),
    ),
    Event(
        "link-cut",
        "a host's cable has no signal",
        acts.fault("link-down"),
        _in_all(_LOST_FROM_VIEW, _STOPPED_OR_UNSEEN, _comes_back(_LOST)),
        undo=acts.healed,
        options=_RESTART,
    ),
    Event(
        "link-cut-briefly",
        "a host's cable has no signal for 2 s",
        acts.briefly_cut,
        _in_all(_goes_on(_LEASE), _STOPPED_QUIETLY),
        undo=acts.healed,
    ),
    Event(
        "link-one-way",
        "a host hears nobody, and is heard",
        acts.deafened,
        _in_all(
            Expect(_SILENT, ("failed",), ("host_lost", "link"), 1, None, SILENT_S, (1, 3), 60.0), _STOPPED_OR_UNSEEN
        ),
        undo=acts.let_hear,
    ),
    Event(
        "slow-link",
        "a host receives 50 Mbit/s",
        acts.fault("slow-link"),
        _in_all(_goes_on(_LEASE)),
        undo=acts.healed,
    ),
    Event(
        "lossy-link",
        "one packet in 32 to a host is lost",
        acts.fault("loss"),
        _in_all(_goes_on(_LEASE)),
        undo=acts.healed,
    ),
    Event(
        "disk-full",
        "the disk of the host that saves is full",
        acts.disk_full,
        _in_all(_dies("disk_full", promise=_DISK, host=0, rank=0, within_s=2.0 + TOLD_S)),
        undo=acts.healed,
    ),
    Event(
        "out-of-memory",
        "a rank takes more than its control group has",
        acts.out_of_memory,
        _in_all(_MEMORY, restarted=_comes_back(_MEMORY)),
        undo=acts.memory_back,
        options=_RESTART,
        missing=acts.no_memory_groups,
    ),
    Event(
        "clock-step",
        "a host's clock goes 30 s ahead, then another host's rank is killed",
        acts.clock_stepped,
        _in_all(_dies("killed_from_outside", promise=_CLOCKS, host=2, rank=2)),
        undo=acts.clock_back,
        prepare=acts.own_clock,
        missing=acts.no_compiler,
    ),
    Event(
        "launched-again",
        "another launch on the same hosts",
        acts.launched_again,
        _in_all(_goes_on(_OWN_PORTS), _STOPPED_QUIETLY),
        moment=Moment.SAID,
    ),
    Event(
        "stopped-by-two",
        "two people stop it at the same moment",
        acts.stopped_by_two,
        _in_all(Expect(_TWICE, ("stopped",), within_s=STOP_S), Expect(_TWICE, ("stopped",), within_s=STOP_S)),
        undo=acts.two_heard,
        moment=Moment.SUPERVISED,
    ),
    Event(
        "sigterm-ignored",
        "a stop of ranks that ignore SIGTERM",
        acts.stopped,
        _in_all(_STOPS),
        args=_everywhere("--deaf"),
    ),
    Event(
        "daemon",
        "a rank leaves a daemon behind",
        acts.daemon_and_killed,
        {_S: _dies("killed_from_outside", promise=_RANK_DIES), _R: _goes_on(_LEFT_BEHIND), _T: _STOPS},
        args={_S: ("--daemon-first",), _T: ("--daemon-last",)},
    ),
    Event(
        "log-flood",
        "a rank writes 12 MiB of lines as fast as it can",
        acts.asks_for("flood"),
        _in_all(_goes_on(_LIMIT)),
        args={_S: ("--flood-first",), _T: ("--flood-last",)},
    ),
    Event(
        "state-damaged",
        "a host's state file is empty, supervisor and guard are stopped, and somebody stops the job",
        acts.state_damaged,
        # who is frozen for the lease is lost to the others, who then end by themselves
        _in_all(Expect(_DAMAGED, ("stopped", "failed"), ("host_lost",), within_s=10.0)),
    ),
    Event(
        "host-gone",
        "a host's power is cut",
        acts.host_gone,
        _in_all(_LOST_FROM_VIEW, _STOPPED_OR_UNSEEN, _comes_back(_LOST, _SPARE)),
        options=_SPARE_OPTIONS,
        loses_lab=True,
    ),
    Event(
        "lab-down",
        "all hosts are gone at once",
        acts.lab_down,
        _in_all(
            Expect(_ALL_GONE, ("unseen",), within_s=0.0, exits=(1, 3), lasts_s=100.0),
            Expect(_ALL_GONE, ("unseen",), within_s=0.0, exits=(1, 3), lasts_s=100.0),
        ),
        loses_lab=True,
    ),
)

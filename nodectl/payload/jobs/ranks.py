"""Which of a job's processes are ranks, and how each of them ended, seen before its launcher takes it away."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from . import kernel, listeners, notes, outputs, stayed, steady
from .classify import LOG_ONLY, Evidence, judge, torchrun_exit, wait_status
from .contain import MARKER
from .flight import summary
from .folder import no_space
from .process import CpuTime, Stat, cpu_time, is_alive, read_environ, read_stat, send
from .syscalls import process_handle

_FIRST_LOOKS, _EVERY_LOOKS = 15, 10  # between a fork and what it executes a stalled machine lets any time pass
_EAGER_S, _EAGER_LOOK_S, _LATE_LOOK_S = 10.0, 0.1, 0.2
_NO_HANDLE_S, _IDLE_S = 0.2, 60.0
_TAIL_BYTES = 16 * 1024
_TRACEBACK_CHARS = 6000
_SUMMARY_BYTES = 256 * 1024


class Rank(NamedTuple):
    """A running rank; `handle` is a pidfd, readable at its end (-1 where this kernel has none).

    `counts` are those of its control `groups` when it came into them, `gpu` its GPU's address where that is told, `cpu`
    the limit of its CPU time.
    """

    pid: int
    start_ticks: int
    rank: int
    local_rank: int
    handle: int
    groups: str = ""
    counts: Optional[Dict[str, int]] = None
    gpu: str = ""
    cpu: Optional[CpuTime] = None


class Death(NamedTuple):
    """A rank that ended; `code` as returncode, None where its launcher was faster; `after_stop`: we had ended it.

    `kills`: how many of the machine's processes the memory killer had ended a moment before.
    """

    rank: int
    local_rank: int
    code: Optional[int]
    time: float
    after_stop: bool
    pid: int = 0
    counts: Optional[Dict[str, int]] = None
    gpu: str = ""
    cpu: Optional[CpuTime] = None
    kills: Optional[int] = None


class Output(NamedTuple):
    """The common output of an attempt's ranks: a file from `begin` on."""

    path: str
    begin: int = 0


class RankWatch:
    """Finds the `expected` ranks among `members(known ranks)`, and reports their ends.

    While it has all, it reads nothing: their handles wake the selector.
    """

    def __init__(
        self,
        job_id: str,
        members: Callable[[Set[int]], Set[int]],
        selector: selectors.BaseSelector,
        expected: int,
    ) -> None:
        self._job_id = job_id
        self._members = members
        self._selector = selector
        self._expected = expected
        self._ends = select.poll()
        self._ranks: Dict[int, Rank] = {}
        self._looks: Dict[int, int] = {}
        self._eager_until_s = 0.0
        self._kills: Tuple[Optional[int], Optional[int]] = (None, None)
        self._next_look_s = 0.0

    def expect(self, now_s: float) -> None:
        """Ranks are about to start: look often, because those that fail at once are gone soon."""
        self._eager_until_s = now_s + _EAGER_S
        self._next_look_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until `look` has something to do; a handle wakes the selector before that."""
        if any(rank.handle < 0 for rank in self._ranks.values()):
            return _NO_HANDLE_S
        return max(0.0, self._next_look_s - now_s) if len(self._ranks) < self._expected else _IDLE_S

    def look(self, now_s: float) -> None:
        """Take up ranks that have started since."""
        if len(self._ranks) >= self._expected or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + (_EAGER_LOOK_S if now_s < self._eager_until_s else _LATE_LOOK_S)
        looks = self._looks
        self._looks = {pid: looks.get(pid, -1) + 1 for pid in self._members(set(self._ranks))}
        for pid, look in self._looks.items():
            if pid not in self._ranks and (look < _FIRST_LOOKS or look % _EVERY_LOOKS == 0):
                self._take_up(pid)

    def _take_up(self, pid: int) -> None:
        env = read_environ(pid)
        if not (env.get("RANK", "").isdigit() and env.get("LOCAL_RANK", "").isdigit()):
            return
        stat = read_stat(pid)
        if stat is None or not self._is_launcher(read_environ(stat.ppid)):
            return
        local_rank = int(env["LOCAL_RANK"])
        gpu = kernel.gpu_address(env.get("CUDA_VISIBLE_DEVICES", ""), local_rank)
        rank = Rank(pid, stat.start_ticks, int(env["RANK"]), local_rank, process_handle(pid), gpu=gpu)
        rank = _in_groups(rank._replace(cpu=cpu_time(pid, stat)))
        self._ranks[pid] = rank
        if rank.handle >= 0:
            self._selector.register(rank.handle, selectors.EVENT_READ)
            self._ends.register(rank.handle, select.POLLIN)

    def follow_groups(self) -> None:
        """Take note of what cannot be read after an end: control groups that a rank was put into, and earlier kills."""
        self._kills = (self._kills[1], kernel.host_kills())
        for pid, rank in self._ranks.items():
            self._ranks[pid] = _in_groups(rank)

    def _is_launcher(self, env: Dict[str, str]) -> bool:
        """Not a rank, whose data loaders carry its variables, and no supervisor or init, which adopt orphans."""
        return env.get(MARKER) == self._job_id and "LOCAL_RANK" not in env

    def deaths(self, *, after_stop: bool) -> List[Death]:
        """Ranks that ended since the last call, in the order of their local rank."""
        ended: List[Death] = []
        told = {handle for handle, _ in self._ends.poll(0)} | {-1}
        for rank in sorted(self._ranks.values(), key=lambda item: item.local_rank):
            stat = read_stat(rank.pid) if rank.handle in told else None
            if rank.handle not in told or (stat is not None and stat.alive and stat.start_ticks == rank.start_ticks):
                continue
            self._forget(rank)
            code = _code(rank, stat)
            cpu = cpu_time(rank.pid, stat) if code is not None and stat is not None else rank.cpu
            death = Death(
                rank.rank, rank.local_rank, code, steady.now(), after_stop, rank.pid, rank.counts, rank.gpu, cpu
            )
            ended.append(death._replace(kills=self._kills[0]))
        if ended:
            self.expect(time.monotonic())  # an elastic launcher starts others
        return ended

    def running(self) -> List[Rank]:
        """Return those that are known and have not been reported as ended."""
        return sorted(self._ranks.values(), key=lambda item: item.local_rank)

    def signal(self, number: int) -> None:
        """Send the ranks a signal, and nothing else of the job: torchrun would die of it."""
        for rank in self._ranks.values():
            if is_alive(rank.pid, rank.start_ticks):
                send(rank.pid, number)

    def close(self) -> None:
        """Let go of the ranks' handles."""
        for rank in list(self._ranks.values()):
            self._forget(rank)

    def _forget(self, rank: Rank) -> None:
        del self._ranks[rank.pid]
        if rank.handle >= 0:
            self._selector.unregister(rank.handle)
            self._ends.unregister(rank.handle)
            os.close(rank.handle)


def _in_groups(rank: Rank) -> Rank:
    """Return it with the counts of its control groups, where those are others than before."""
    groups = kernel.groups(rank.pid) if is_alive(rank.pid, rank.start_ticks) else rank.groups
    if groups == rank.groups:
        return rank
    return rank._replace(groups=groups, counts=kernel.counts(kernel.counters(groups)))


def _code(rank: Rank, stat: Optional[Stat]) -> Optional[int]:
    if stat is None or stat.start_ticks != rank.start_ticks:
        return None
    return wait_status(stat.exit_code)


class HostAtStart(NamedTuple):
    """What a rank's end is compared with: the job's folder, when its ranks were started, and kills until then.

    `logs` is the folder of the ranks' own logs, `output` what they wrote together; `warned` is the signal that they
    were sent before the end of their time (0: none yet).
    """

    job: str
    logs: str
    output: Output
    since_s: float
    kills: Optional[int]
    warned: int = 0


def host_at_start(job: str, logs: str, output: Output) -> HostAtStart:
    """Now, before the ranks are started."""
    return HostAtStart(job, logs, output, kernel.now_s(), kernel.host_kills())


def describe(
    death: Death, host: HostAtStart, *, after_another: bool, stopped_at: float = float("inf")
) -> Dict[str, Any]:
    """The death as a failure: `kind`, `class`, `message`, `rank`, `exit_status`, `time`, …; {} where it is none.

    What a rank raised before `stopped_at`, when the job's end began here, is its own.
    """
    code = death.code
    if code is None:
        code = torchrun_exit(tail(host.output), death.local_rank)
    note = notes.read_error(host.job, death.rank, host.since_s)
    if code == 0 or (code is None and note is None and not after_another and not death.after_stop):
        return {}
    verdict = judge(_evidence(death, code, note, host, after_another=after_another))
    status = None if code is None else (code if code >= 0 else 128 - code)
    ended_us = death.after_stop and not (note and notes.raised_at(note) < stopped_at)
    failure = {
        "kind": "terminated" if ended_us else verdict.kind,
        "class": "terminated" if ended_us else verdict.category,
        "message": verdict.message,
        "rank": death.rank,
        "exit_status": status,
        "time": notes.raised_at(note) if note and verdict.traceback else death.time,
        "evidence": list(verdict.evidence),
        "traceback": verdict.traceback[-_TRACEBACK_CHARS:],
        **({"flight": summary(note.get("flight"))} if note and note.get("flight") else {}),
    }
    stayed.explain(failure, host.job)
    listeners.explain(failure)
    return failure


def _evidence(
    death: Death, code: Optional[int], note: Optional[Dict[str, Any]], host: HostAtStart, *, after_another: bool
) -> Evidence:
    full = tuple(notes.full_disks(host.job))
    known = Evidence(
        code=code,
        code_from_log=not death.pid or (death.code is None and code is not None),
        after_another=after_another,
        note=note,
        # a note that found no room says nothing by its absence
        watched=notes.is_watched(host.job, death.rank) and not no_space(host.job),
        left=notes.has_left(host.job, death.rank),
        full=full if note is None else (),
        warned=host.warned,
        stack=notes.crash(host.job, death.rank),
        cpu=death.cpu,
        **log_of(host.logs, host.output, death.local_rank),
    )
    ended_us = death.after_stop or (code == -signal.SIGTERM and after_another)
    return known if ended_us else known._replace(**_of_kernel(death, host))


def _of_kernel(death: Death, host: HostAtStart) -> Dict[str, Any]:
    """Return what the kernel counted and wrote about this process, its control groups and its GPU."""
    lines, problem = kernel.log_since(host.since_s)
    own = [line for line in lines if line.pid == death.pid or (death.gpu and death.gpu in line.text.lower())]
    others = [line for line in lines if line.kind == "xid" and line not in own]
    said = [f"kernel log: {line.text}" for line in own]
    said += [f"kernel log, of another GPU or program: {line.text}" for line in others]
    before = death.counts or {}
    rose = {path: count - before[path] for path, count in kernel.counts(list(before)).items() if count > before[path]}
    killer = [f"kernel log: {line.text}" for line in own if line.kind == "oom"]
    for path in rose:
        if not kernel.is_of_pids(path) and not kernel.is_of_machine(path):
            killer += [
                f"{path}: oom_kill went from {before[path]} to {before[path] + rose[path]}",
                kernel.limit_of(path),
            ]
    other_kills, killed_then = _other_kills(death, host, lines, problem) if not killer else ("", False)
    return {
        "memory_killer": tuple(filter(None, killer)),
        "other_kills": other_kills,
        "killed_then": killed_then,
        "forks": tuple(
            f"{path} counts {times} more forks that were refused; {kernel.limit_of(path)}".rstrip("; ")
            for path, times in rose.items()
            if kernel.is_of_pids(path)
        ),
        "kernel": tuple(said),
        "xid": any(line.kind == "xid" for line in own),
    }


def _other_kills(death: Death, host: HostAtStart, lines: List[kernel.Line], problem: str) -> Tuple[str, bool]:
    """What is known of the memory killer where nothing ties a kill to this process; whether one came in that moment."""
    ended = kernel.host_kills()
    count = 0 if ended is None or host.kills is None else ended - host.kills
    victims = {line.pid for line in lines if line.kind == "oom" and line.pid}
    if count <= 0:
        unread = f"; its log could not be read: {problem}" if problem else ""
        return f"nothing tells of the kernel's memory killer{unread}", False
    since = f"since the job's start the kernel's memory killer ended {count} of the machine's processes (/proc/vmstat)"
    if any(not kernel.is_of_pids(path) and not kernel.is_of_machine(path) for path in death.counts or ()):
        return f"{since}, and none of its control group", False
    if len(victims) >= count and kernel.names_our_pids():
        return f"{since}, by its log others: {', '.join(map(str, sorted(victims)))}", False
    if ended is not None and death.kills is not None and ended <= death.kills:
        return f"{since}, all of them before it died", False
    return f"{since}, and nothing tells whether it is one of them", True


def unseen(plan: Dict[str, Any], host: HostAtStart, *, known: Set[int], after_stop: bool) -> List[Dict[str, Any]]:
    """Failures of ranks that had gone before anybody looked, as they or torchrun tell of them; `known` are left out."""
    text = tail(host.output, _SUMMARY_BYTES)
    failures = []
    for local_rank in range(plan["nproc_per_node"]):
        rank = plan["rank"] * plan["nproc_per_node"] + local_rank
        code = torchrun_exit(text, local_rank)
        if code is None and notes.read_error(host.job, rank, host.since_s) is not None:
            code = 1
        if code and rank not in known:
            ours = after_stop and code == -signal.SIGTERM
            death = Death(rank, local_rank, code, steady.now(), after_stop=ours)
            failures.append(describe(death, host, after_another=False))
    return [failure for failure in failures if failure]


def log_of(logs: str, output: Output, local_rank: int) -> Dict[str, Any]:
    """The end of what the rank wrote: from its own log where the launcher keeps one, else its lines of the output.

    Where those are not marked, all lines, and `shared`.
    """
    own = [path for path in outputs.own_files(logs, local_rank) if not path.endswith("stdout.log")]
    if own:
        return {"log": tail(Output(max(own, key=os.path.getmtime))), "shared": False}
    mark = f"[default{local_rank}]:"
    text = tail(output, _SUMMARY_BYTES)
    marked = [line[len(mark) :] for line in text.splitlines() if line.startswith(mark)]
    if marked:
        return {"log": "\n".join(marked)[-_TAIL_BYTES:], "shared": False}
    return {"log": text[-_TAIL_BYTES:], "shared": True}


def last_loss(logs: str, output: Output, local_rank: int) -> str:
    """That the last loss which a rank told is none; empty where it is one, or it told none."""
    from . import pulse  # at the end of a rank alone

    own = [path for path in outputs.own_files(logs, local_rank) if not path.endswith("stderr.log")]
    said = log_of(logs, output, local_rank)
    texts = [*(tail(Output(path)) for path in own), *([] if said["shared"] else [said["log"]])]
    found = next(filter(None, map(pulse.diverged, texts)), "")
    return f"the last loss that it told is {found} ({LOG_ONLY})" if found else ""


def tail(output: Output, size_bytes: int = _TAIL_BYTES) -> str:
    """The last bytes of it as text; empty where it cannot be read."""
    try:
        with open(output.path, "rb") as file:
            file.seek(max(output.begin, os.fstat(file.fileno()).st_size - size_bytes, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""

"""Collects the evidence of a rank's end (notes, log, kernel, torchrun), has it judged, and returns a failure."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..common.patterns import lazily
from . import kernel, notes, outputs, steady
from .classify import Evidence, Verdict, judge, torchrun_exit
from .failures import Failure, row
from .flight import summary
from .folder import no_space
from .ranks import Death

_TAIL_BYTES = 16 * 1024
_TRACEBACK_CHARS = 6000
_LINE = lazily(r'File "([^"\n]+)", line (\d+)')
_SUMMARY_BYTES = 256 * 1024


class Output(NamedTuple):
    """The shared output of an attempt's ranks: a file, from the offset `begin` on."""

    path: str
    begin: int = 0


class HostAtStart(NamedTuple):
    """The host when its ranks were started: the job's folder, the time, and the number of memory kills until then.

    `logs` is the folder of the ranks' separate logs, `output` their shared output.
    """

    job: str
    logs: str
    output: Output
    since_s: float
    kills: Optional[int]


def host_at_start(job: str, logs: str, output: Output) -> HostAtStart:
    """Record the host's state at this moment, just before its ranks are started."""
    return HostAtStart(job, logs, output, time.monotonic(), kernel.host_kills())


def describe(
    death: Death, host: HostAtStart, *, after_another: bool, stopped_at: float = float("inf")
) -> Dict[str, Any]:
    """Return the death as a failure (`kind`, `class`, `message`, `rank`, `exit_status`, `time`, …); {} for none.

    An exception raised before `stopped_at`, when this host began to end the job, counts as the rank's own failure.
    """
    code = death.code
    if code is None:
        code = torchrun_exit(tail(host.output), death.local_rank)
    note = notes.read_error(host.job, death.rank, host.since_s)
    if code == 0 or (code is None and note is None and not after_another and not death.after_stop):
        return {}
    verdict = judge(_evidence(death, code, note, host, after_another=after_another))
    failure = _failure(verdict, death.rank, code, note, death.time)
    if note and verdict.traceback:
        failure["time"] = notes.raised_at(note)
    if death.after_stop and not (note and notes.raised_at(note) < stopped_at):
        failure.update({"kind": "terminated", "class": "terminated"})
    explain_stayed(failure, host.job)
    return failure


def _failure(verdict: Verdict, rank: int, code: Optional[int], note: Optional[Dict[str, Any]], at: float) -> Failure:
    status = None if code is None else (code if code >= 0 else 128 - code)
    failure = row(verdict.kind, verdict.message, at, rank=rank, exit_status=status, evidence=list(verdict.evidence))
    failure.update({"class": verdict.category, "traceback": verdict.traceback[-_TRACEBACK_CHARS:]})
    failure["line"] = line_of(verdict.traceback)
    if note and note.get("flight"):
        failure["flight"] = summary(note.get("flight"))
    return failure


def line_of(traceback: str) -> str:
    """Return `train.py line 41`: the innermost line of a traceback that lies in a job's code, else of all."""
    lines = _LINE.findall(traceback)
    own = [line for line in lines if "/code/" in line[0]] or lines
    return f"{os.path.basename(own[-1][0])} line {own[-1][1]}" if own else ""


def _evidence(
    death: Death, code: Optional[int], note: Optional[Dict[str, Any]], host: HostAtStart, *, after_another: bool
) -> Evidence:
    full = tuple(notes.full_disks(host.job))
    evidence = Evidence(
        code=code,
        code_from_log=not death.pid or (death.code is None and code is not None),
        after_another=after_another,
        note=note,
        # a full disk may have kept the rank from writing its note
        watched=bool(notes.watch_of(host.job, death.rank)) and not no_space(host.job),
        left="left" in notes.read(notes.place(host.job, death.rank, "error.json")),
        full=full if note is None else (),
        stack=notes.crash(host.job, death.rank),
        **log_of(host.logs, host.output, death.local_rank),
    )
    ended_us = death.after_stop or (code == -signal.SIGTERM and after_another)
    return evidence if ended_us else evidence._replace(**_of_kernel(death, host))


def _of_kernel(death: Death, host: HostAtStart) -> Dict[str, Any]:
    lines, problem = kernel.log_since(host.since_s)
    own_lines = [line for line in lines if line.pid == death.pid or (death.gpu and death.gpu in line.text.lower())]
    others = [line for line in lines if line.kind == "xid" and line not in own_lines]
    kernel_lines = [f"kernel log: {line.text}" for line in own_lines]
    kernel_lines += [f"kernel log, of another GPU or program: {line.text}" for line in others]
    before = death.counts or {}
    rose = {path: count for path, count in kernel.counts(list(before)).items() if count > before[path]}
    killer = [f"kernel log: {line.text}" for line in own_lines if line.kind == "oom"]
    for path in rose:
        if not kernel.is_of_machine(path):
            killer += [f"{path}: oom_kill went from {before[path]} to {rose[path]}", kernel.limit_of(path)]
    other_kills, killed_then = _other_kills(death, host, problem) if not killer else ("", False)
    return {
        "memory_killer": tuple(filter(None, killer)),
        "other_kills": other_kills,
        "killed_then": killed_then,
        "kernel": tuple(kernel_lines),
        "xid": any(line.kind == "xid" for line in own_lines),
    }


def _other_kills(death: Death, host: HostAtStart, problem: str) -> Tuple[str, bool]:
    """Return a sentence on memory kills that are not tied to this process, and whether one may have been its own."""
    ended = kernel.host_kills()
    count = 0 if ended is None or host.kills is None else ended - host.kills
    if count <= 0:
        unread = f"; its log could not be read: {problem}" if problem else ""
        return f"nothing tells of the kernel's memory killer{unread}", False
    since = f"since the job's start the kernel's memory killer ended {count} of the machine's processes (/proc/vmstat)"
    if any(not kernel.is_of_machine(path) for path in death.counts or ()):
        return f"{since}, and none of its control group", False
    if ended is not None and death.kills is not None and ended <= death.kills:
        return f"{since}, all of them before it died", False
    return f"{since}, and nothing tells whether it is one of them", True


def unseen(plan: Dict[str, Any], host: HostAtStart, *, seen_ranks: Set[int], after_stop: bool) -> List[Dict[str, Any]]:
    """Return failures of ranks whose end nobody saw, by their notes or torchrun's log; `seen_ranks` are left out."""
    text = tail(host.output, _SUMMARY_BYTES)
    failures = []
    for local_rank in range(plan["nproc_per_node"]):
        rank = plan["rank"] * plan["nproc_per_node"] + local_rank
        code = torchrun_exit(text, local_rank)
        if code is None and notes.read_error(host.job, rank, host.since_s) is not None:
            code = 1
        if code and rank not in seen_ranks:
            ours = after_stop and code == -signal.SIGTERM
            death = Death(rank, local_rank, code, steady.now(), after_stop=ours)
            failures.append(describe(death, host, after_another=False))
    return [failure for failure in failures if failure]


def log_of(logs: str, output: Output, local_rank: int) -> Dict[str, Any]:
    """Return the end of the rank's own log as `log` if the launcher keeps one, else its lines of the shared output.

    If those lines are not marked by rank, `log` holds all lines and `shared` is True.
    """
    own_logs = [path for path in outputs.own_files(logs, local_rank) if not path.endswith("stdout.log")]
    if own_logs:
        return {"log": tail(Output(max(own_logs, key=os.path.getmtime))), "shared": False}
    mark = f"[default{local_rank}]:"
    text = tail(output, _SUMMARY_BYTES)
    marked = [line[len(mark) :] for line in text.splitlines() if line.startswith(mark)]
    if marked:
        return {"log": "\n".join(marked)[-_TAIL_BYTES:], "shared": False}
    return {"log": text[-_TAIL_BYTES:], "shared": True}


def tail(output: Output, size_bytes: int = _TAIL_BYTES) -> str:
    """Return the last bytes of an output as text; "" if it cannot be read."""
    return outputs.tail(output.path, size_bytes, output.begin)


_LACKING = ("data_missing", "import_error")
# a path in quotes, or a word with a slash in it
_PATH = lazily(r"'([^'\n]{1,500})'|\"([^\"\n]{1,500})\"|([\w.~-]*/[^\s'\",;:()]{1,500})")
_MODULE = lazily(r"No module named '?([A-Za-z_][\w.]*)")


def explain_stayed(failure: Failure, folder: str) -> None:
    """Add to a failure's evidence which rule left the missing file out of the copied code; `folder` is the job's."""
    if failure.get("class") not in _LACKING:
        return
    plan = notes.read(os.path.join(folder, "plan.json"))
    rules = [(str(place), str(rule)) for place, rule in plan.get("stayed") or ()]
    code = os.path.join(folder, "code")
    for place in _places(failure, plan, code) if rules else ():
        left_out = None if os.path.lexists(os.path.join(code, place)) else _rule_of(place, rules)
        if left_out is not None:
            failure["evidence"] = [
                *failure["evidence"],
                f"{place} did not travel with the code: {left_out[1]} leaves out {left_out[0]}",
            ]
            return


def _places(failure: Dict[str, Any], plan: Dict[str, Any], code: str) -> Iterator[str]:
    workdir = str(plan.get("workdir") or "")
    beside = os.path.join(workdir, os.path.dirname(str(plan.get("script") or "")))
    text = "\n".join((str(failure["message"]), *failure["evidence"]))
    words = [match[1].replace(".", "/") + ending for match in _MODULE.finditer(text) for ending in (".py", "")]
    words += [match[1] or match[2] or match[3] for match in _PATH.finditer(text)]
    for word in words:
        for base in (workdir, "", beside, "src"):
            yield os.path.relpath(os.path.normpath(os.path.join(code, base, word)), code)


def _rule_of(place: str, rules: List[Tuple[str, str]]) -> Optional[Tuple[str, str]]:
    """Return the left-out path that equals, holds or lies in `place`, with its rule; None if there is none."""
    for left, rule in rules:
        if left in (place, f"{place}/") or (left.endswith("/") and place.startswith(left)):
            return left, rule
    return next((row for row in rules if row[0].startswith(f"{place}/")), None)

"""Looks at ranks that still live: state and stacks; in a running job also CPU, network and NCCL."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from ..common import machine
from ..common.patterns import lazily
from . import flight, kernel, notes, outputs, pulse, waiting
from .contain import Containment
from .folder import JobFolder, venv_of
from .process import below, read_environ, read_stat, read_text, send
from .ranks import Rank

_ANSWER_S = 0.5
_HELPERS_S = 0.6
_SPY_S = 0.8
_POLL_S = 0.01
FRAMES = 16
_FRAME = lazily(r'^  File "(.*)", line (\d+) in (.*)$')
_THREAD = lazily(r"^(?:Current thread|Thread) 0x", re.M)


def look(job: str, ranks: Sequence[Rank], venv: str = "") -> List[Dict[str, Any]]:
    """Return a row a rank: `rank`, `state` (a letter of /proc), its main thread's `stack`, newest first (or empty).

    `by` tells how it was had: py-spy, which a rank does not notice, else a signal that its faulthandler answers.
    """
    spied = _py_spy_stacks([rank.pid for rank in ranks], venv)
    answers = _answers(job, {rank.rank: rank.pid for rank in ranks if rank.pid not in spied}, _ANSWER_S)
    rows = []
    for rank in ranks:
        stack = spied.get(rank.pid) or answers.get(rank.rank, [])
        by = "py-spy" if rank.pid in spied else "signal" if stack else ""
        stat = read_stat(rank.pid)
        rows.append({"rank": rank.rank, "state": stat.state if stat else "X", "stack": stack, "by": by})
    return rows


def with_children(
    job: str, rows: Sequence[Dict[str, Any]], ranks: Sequence[Rank], venv: str = ""
) -> List[Dict[str, Any]]:
    """Add to each row of `look` the system `call` in which the rank waits, and its `helpers`, with their stacks."""
    children = [waiting.helpers(rank.pid) for rank in ranks]
    spied = _py_spy_stacks([child["pid"] for helpers in children for child in helpers], venv)
    until_s = time.monotonic() + _HELPERS_S
    told = []
    for rank, row, helpers in zip(ranks, rows, children):  # noqa: B905 - Python 3.8
        for child in helpers:  # a fork of the rank writes into its file: they are asked one by one
            left_s = until_s - time.monotonic() if child["state"] in "RS" and child["pid"] not in spied else 0.0
            answer = _answers(job, {rank.rank: child["pid"]}, left_s) if left_s > 0 else {}
            child["stack"] = spied.get(child["pid"]) or answer.get(rank.rank, [])
        told.append({**row, "call": waiting.call(rank.pid), "helpers": helpers})
    return told


def _answers(job: str, pids: Dict[int, int], most_s: float) -> Dict[int, List[str]]:
    asked = {number: _ask(job, number, pid) for number, pid in pids.items()}
    until_s = time.monotonic() + most_s
    answers: Dict[int, List[str]] = {}
    while time.monotonic() < until_s and len(answers) < sum(size >= 0 for size in asked.values()):
        time.sleep(_POLL_S)
        for number, size in asked.items():
            text = _written_since(job, number, size) if size >= 0 and number not in answers else ""
            if text:
                answers[number] = main_stack(text)
    return answers


def _ask(job: str, rank: int, pid: int) -> int:
    """Ask a rank, or a fork of it, to write its stacks; return their file's size before that, -1 if it cannot write."""
    watch = notes.watch_of(job, rank)
    place = os.path.join(job, "notes", f"{rank}.stacks")
    if not watch:
        return -1
    for process in (pid, *sorted(below(pid, set()))):
        # the program may have closed the handle and reused its number for another file, or dropped the signal
        try:
            if os.path.samefile(f"/proc/{process}/fd/{watch['handle']}", place) and _catches(process, watch["signal"]):
                size = os.path.getsize(place)
                send(process, watch["signal"])
                return size
        except OSError:
            continue
    return -1


def _catches(pid: int, number: int) -> bool:
    masks = [line.split()[1] for line in read_text(f"/proc/{pid}/status").splitlines() if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def _written_since(job: str, rank: int, size: int) -> str:
    """Return the stacks once they are complete: the main thread's is written last."""
    try:
        with open(os.path.join(job, "notes", f"{rank}.stacks"), "rb") as file:
            file.seek(size)
            text = file.read(256 * 1024).decode(errors="replace")
    except OSError:
        return ""
    return text if _THREAD.search(text) and text.endswith("\n") and _FRAME.match(text.splitlines()[-1]) else ""


def main_stack(text: str) -> List[str]:
    """`file:line function` of the thread that faulthandler writes last, newest first."""
    last = text[max((match.start() for match in _THREAD.finditer(text)), default=0) :]
    frames = [match.groups() for match in map(_FRAME.match, last.splitlines()) if match]
    return [f"{name}:{line} {function}" for name, line, function in frames[:FRAMES]]


_WINDOW_S = 2.0
_TOOL_S = 10.0
_RAS_S = 5.0
_RAS_BYTES = 256 * 1024
_TOOLS_AT_ONCE = 8
_RAS = ("localhost", 28028)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def looks(job: JobFolder, tool_s: float = _TOOL_S) -> Iterator[Dict[str, Any]]:
    """Yield the parts of a report as they come: ranks, their children, tools, ranks 2 s later.

    `ranks` are as of `look`, with `moved`, `cpu` and `output_age_s`. A tool is waited for `tool_s`.
    """
    plan, state = job.plan(), job.state()
    ranks, environments = find_ranks(job, state)
    before, venv = _measures(ranks, plan), venv_of(plan, plan["hosts"][plan["rank"]])
    first = look(job.path, ranks, venv)
    yield _report(job, ranks, first, first)
    yield _report(job, ranks, with_children(job.path, first, ranks, venv), first)
    with ThreadPoolExecutor(_TOOLS_AT_ONCE) as pool:
        gpus, ras = pool.submit(pulse.gpus, tool_s), pool.submit(_nccl_ras_text, environments, min(_RAS_S, tool_s))
        lines = kernel.log_since(time.monotonic() - (time.time() - os.path.getmtime(job.at("plan.json"))))[0]
        xids = [line.text for line in lines if line.kind == "xid"]
        rest = {"flight": flight.read_dumps(job.path), "xids": xids}
        rest["ended"] = [end["rank"] for end in state.get("ends", ())]
        yield {**rest, "gpus": gpus.result(), "ras": ras.result()}
        time.sleep(max(0.0, _WINDOW_S - (time.monotonic() - before[0])))
        second = with_children(job.path, look(job.path, ranks, venv), ranks, venv)
        after = _measures(ranks, plan)
    seconds = after[0] - before[0]
    report = _report(job, ranks, second, first)
    for rank, row in zip(ranks, report["ranks"]):  # noqa: B905 - Python 3.8
        row["cpu"] = round((after[1].get(rank.pid, 0) - before[1].get(rank.pid, 0)) / _TICKS_PER_S / seconds, 2)
    report["network"] = {
        f"{kind} {way}": round((after[2][kind][way] - count) / seconds)
        for kind, counts in before[2].items()
        for way, count in counts.items()
        if kind in after[2]
    }
    yield report


def _report(
    job: JobFolder, ranks: Sequence[Rank], rows: Sequence[Dict[str, Any]], first: Sequence[Dict[str, Any]]
) -> Dict[str, Any]:
    told = [
        {
            **row,
            "moved": bool(one["stack"]) and one["stack"] != row["stack"],
            "cpu": 0.0,
            "output_age_s": _output_age_s(job, rank.local_rank),
        }
        for rank, row, one in zip(ranks, rows, first)  # noqa: B905 - strict is newer than some hosts' Python
    ]
    return {"ranks": told}


def find_ranks(job: JobFolder, state: Dict[str, Any]) -> Tuple[List[Rank], List[Dict[str, str]]]:
    """Find the job's ranks here, and their environments: the topmost processes with a rank's variables."""
    by_pid: Dict[int, Tuple[Rank, Dict[str, str]]] = {}
    for pid in sorted(Containment.recorded(job.id, state.get("containment", {})).members()):
        env, stat = read_environ(pid), read_stat(pid)
        if stat is None or not (env.get("RANK", "").isdigit() and env.get("LOCAL_RANK", "").isdigit()):
            continue
        if "LOCAL_RANK" not in read_environ(stat.ppid):
            by_pid[pid] = (Rank(pid, stat.start_ticks, int(env["RANK"]), int(env["LOCAL_RANK"]), -1), env)
    in_order = sorted(by_pid.values(), key=lambda item: item[0].rank)
    return [rank for rank, _ in in_order], [env for _, env in in_order]


def _measures(ranks: Sequence[Rank], plan: Dict[str, Any]) -> Tuple[float, Dict[int, int], Dict[str, Dict[str, int]]]:
    stats = ((rank.pid, read_stat(rank.pid)) for rank in ranks)
    ticks = {pid: stat.cpu_ticks for pid, stat in stats if stat is not None}
    network = pulse.network_bytes(str(plan["hosts"][plan["rank"]].get("interface", "")))
    counted = {"network": network, "RDMA": pulse.rdma_bytes()}
    counts = {
        kind: {name[: -len("_bytes")]: number for name, number in counters.items()}
        for kind, counters in counted.items()
        if counters
    }
    return time.monotonic(), ticks, counts


def _output_age_s(job: JobFolder, local_rank: int) -> Optional[float]:
    """Return the seconds since the rank's last output; if ranks share a log, since the last output of any."""
    times = []
    for path in outputs.own_files(job.at("ranks"), local_rank) or [job.at("output.log")]:
        with contextlib.suppress(OSError):
            times.append(os.path.getmtime(path))
    return round(max(0.0, time.time() - max(times)), 1) if times else None


def _py_spy_stacks(pids: Sequence[int], venv: str) -> Dict[int, List[str]]:
    tool = shutil.which(
        "py-spy", path=os.pathsep.join(filter(None, (venv and os.path.join(venv, "bin"), os.environ.get("PATH"))))
    )
    if tool is None:
        return {}
    until_s = time.monotonic() + _SPY_S
    with ThreadPoolExecutor(_TOOLS_AT_ONCE) as pool:
        stacks = dict(zip(pids, pool.map(partial(_py_spy, tool, until_s), pids)))  # noqa: B905 - Python 3.8
    return {pid: stack for pid, stack in stacks.items() if stack}


def _py_spy(tool: str, until_s: float, pid: int) -> List[str]:
    """Return the main thread's stack by py-spy, without a stop of the process: a stop ends calls by EINTR, too."""
    with contextlib.suppress(ValueError, TypeError, KeyError, IndexError):
        argv = [tool, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        threads = json.loads(machine.printed(argv, max(0.0, until_s - time.monotonic()), True) or "")
        main = next((thread for thread in threads if thread.get("thread_name") == "MainThread"), threads[0])
        # a function's name with its class, where faulthandler has the name alone
        return [f"{row['filename']}:{row['line']} {row['name'].rpartition('.')[2]}" for row in main["frames"][:FRAMES]]
    return []


def _nccl_ras_text(environments: Sequence[Dict[str, str]], most_s: float) -> str:
    address = _RAS
    for env in environments:
        host, _, port = env.get("NCCL_RAS_ADDR", "").rpartition(":")
        if port.isdigit():
            address = (host.strip("[]") or "localhost", int(port))
    answer = b""
    try:
        with socket.create_connection(address, timeout=most_s) as line:
            line.sendall(b"verbose status\n")
            while len(answer) < _RAS_BYTES:
                block = line.recv(65536)
                if not block:
                    break
                answer += block
    except OSError:  # also after a time-out: use what has arrived
        pass
    return answer.decode(errors="replace")

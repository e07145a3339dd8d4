"""The ranks of a host: a process each, ended together, which meet the ranks of the other hosts."""

import argparse
import datetime
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import Any, Deque, List, NamedTuple, Optional, Tuple

PEER_WORDS = ("peer", "Connection", "connection", "timed out", "Timed out", "timeout", "ncclRemoteError")
# what torch and NCCL print before they end their own process: their watchdogs, and C++ exceptions that nobody caught
_LAST_WORDS = re.compile(
    r"(?:Watchdog caught|watchdog thread terminated|watchdog got stuck|Heartbeat monitor timed out|what\(\): ).*"
)
_LINES, _LONGEST = 400, 300
_REMEDIES = {
    signal.SIGKILL: "was memory short there? see its kernel log",
    signal.SIGBUS: "is /dev/shm full there, or memory damaged? see its kernel log",
}


class Death(NamedTuple):
    """A rank that was ended by a signal; `peer`: by its own word it only waited in vain for another."""

    text: str
    remedy: str
    peer: bool


def of_peer(text: str) -> bool:
    """Return whether an error of these words was caused by another rank."""
    return any(word in text for word in PEER_WORDS)


class _Stderr:
    def __init__(self, pipe: Any) -> None:
        self.lines: Deque[str] = deque(maxlen=_LINES)
        self._thread = threading.Thread(target=self._copy, args=(pipe,), daemon=True)
        self._thread.start()

    def _copy(self, pipe: Any) -> None:
        for line in pipe:
            self.lines.append(line.decode(errors="replace").strip())
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()

    def end(self) -> List[str]:
        # a process that it left behind may hold the pipe
        self._thread.join(2)
        return list(self.lines)


def death(rank: int, number: int, printed: List[str]) -> Death:
    """Return the death of a rank that was ended by this signal, after it had printed this on stderr."""
    name = signal.Signals(number).name
    last = [match.group()[:_LONGEST] for match in map(_LAST_WORDS.search, printed) if match]
    if number == signal.SIGABRT and last:
        text = "local rank %d ended itself (%s): %s" % (rank, name, last[0])
        return Death(text, "", of_peer(last[0]))
    return Death("local rank %d was ended by %s" % (rank, name), _REMEDIES.get(signal.Signals(number), ""), False)


def spawn(count: int, given: bytes = b"") -> Tuple[int, Optional[Death]]:
    """Run this program once for each rank, with `given` on its standard input; the first that fails ends the others.

    Its exit status, and its death where that was by a signal that is not ours: a rank that fails otherwise says why.
    """
    children: List["subprocess.Popen[bytes]"] = []
    errors: List[_Stderr] = []
    stopped = []

    def stop(*_: Any) -> None:
        for child in children:
            child.kill()

    def stop_from_outside(*_: Any) -> None:
        stopped.append(True)
        stop()

    signal.signal(signal.SIGTERM, stop_from_outside)
    try:
        for index in range(count):
            argv = [sys.executable, *sys.argv, "--local-rank", str(index)]
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            children.append(child)
            errors.append(_Stderr(child.stderr))
            if child.stdin:
                child.stdin.write(given)
                child.stdin.close()
        while True:
            states = [child.poll() for child in children]
            failed = [(index, state) for index, state in enumerate(states) if state]
            if failed or None not in states:
                break
            time.sleep(0.05)
    finally:
        stop()
    index, state = failed[0] if failed else (0, 0)
    printed = [error.end() for error in errors]
    if state >= 0 or stopped:
        return abs(state), None
    return abs(state), death(index, -state, printed[index])


def init_process_group(dist: Any, options: argparse.Namespace, rank: int) -> None:
    """Meet the other ranks where the options say."""
    address = "[%s]" % options.master_addr if ":" in options.master_addr else options.master_addr
    dist.init_process_group(
        options.backend,
        init_method="tcp://%s:%d" % (address, options.master_port),
        rank=rank,
        world_size=options.world_size,
        timeout=datetime.timedelta(seconds=options.timeout),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options by which a host's ranks meet the others."""
    for name in ("--rank-base", "--world-size", "--nproc", "--master-port"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--master-addr", "--backend"):
        parser.add_argument(name, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--local-rank", type=int, default=-1)

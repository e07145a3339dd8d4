"""The ranks of a host: a process each, ended together, which meet the ranks of the other hosts."""

import argparse
import datetime
import signal
import subprocess
import sys
import time
from typing import Any, List, Tuple

PEER_WORDS = ("peer", "Connection", "connection", "timed out", "Timed out", "timeout", "ncclRemoteError")


def of_peer(text: str) -> bool:
    """An error of these words was caused by another rank."""
    return any(word in text for word in PEER_WORDS)


def spawn(count: int, given: bytes = b"") -> Tuple[int, str]:
    """This program once for each rank, with `given` on its standard input; the first that fails ends the others.

    Its exit status, and what ended it where that was a signal of somebody else: a rank that fails by itself says why.
    """
    children: List["subprocess.Popen[bytes]"] = []
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
            child = subprocess.Popen(argv, stdin=subprocess.PIPE)
            children.append(child)
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
    if state >= 0 or stopped:
        return abs(state), ""
    return abs(state), "local rank %d was ended by %s" % (index, signal.Signals(-state).name)


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
    """The options by which a host's ranks meet the others."""
    for name in ("--rank-base", "--world-size", "--nproc", "--master-port"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--master-addr", "--backend"):
        parser.add_argument(name, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--local-rank", type=int, default=-1)

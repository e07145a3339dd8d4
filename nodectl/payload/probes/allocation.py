"""Holds nodes of Slurm's for one nodectl, for as long as the connection lives that started this program.

salloc runs `cat`, which ends with its standard input: that is held here, so that the nodes go back however this ends.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import List, Sequence

from ..common.events import say

POLL_S = 1.0
GIVE_BACK_S = 20.0


def main(argv: Sequence[str]) -> int:
    """Take nodes by a job's name and options of salloc, tell what it waits for, and hold them; 1 where salloc ends."""
    name, *options = argv
    command = ["salloc", "--job-name=" + name, *options, "cat"]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with tempfile.TemporaryFile() as words:
        salloc = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=words, start_new_session=True
        )
        try:
            say(event="asked", pid=os.getpid())
            known: List[str] = []
            while salloc.poll() is None:
                job = known if known[1:2] == ["RUNNING"] else queued(name)
                if job and job != known:
                    known = job
                    say(event="held" if job[1] == "RUNNING" else "waits", job=job[0], reason=job[2])
                say(event="beat")
                time.sleep(POLL_S)
            words.seek(0)
            lines = words.read().decode(errors="replace").strip().splitlines()
            say(event="error", text="; ".join(lines[-2:])[-400:] or "salloc ended with %s" % salloc.returncode)
        finally:
            give_back(salloc)
    return 1


def queued(name: str) -> List[str]:
    """Return number, state and reason of the job; empty where Slurm does not tell."""
    argv = ["squeue", "--noheader", "--name=" + name, "--format=%i|%T|%r"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    row = done.stdout.decode(errors="replace").strip().split("|", 2)
    return row if len(row) == 3 else []


def give_back(salloc: "subprocess.Popen[bytes]") -> None:
    """End salloc: its program where it has the nodes, itself where it waits for them."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # a second one would leave it in the queue
        signal.signal(number, signal.SIG_IGN)
    if salloc.stdin is not None:
        salloc.stdin.close()
    try:
        salloc.wait(POLL_S)
    except subprocess.TimeoutExpired:
        salloc.terminate()
        salloc.wait(GIVE_BACK_S)

"""Holds nodes of Slurm's for one nodectl, for as long as the connection lives that started this program.

salloc runs `cat`, which ends with its standard input: that is held here, so that the nodes go back however this ends.
"""

import os
import signal
import subprocess
import sys
import tempfile
from typing import List, Sequence

from ..common.events import say

POLL_S = 1.0
ASK_S = 20.0
GIVE_BACK_S = 20.0


def main(argv: Sequence[str]) -> int:
    """Take nodes by a job's name and further options of salloc; 1 where Slurm does not give them or takes them back."""
    name, *options = argv
    command = ["salloc", "--job-name=" + name, *options, "cat"]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with tempfile.TemporaryFile() as words:
        try:
            salloc = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=words, start_new_session=True
            )
        except OSError as error:
            say(event="error", text="salloc cannot be run: %s" % error, remedy="install Slurm's commands there")
            return 1
        try:
            say(event="asked", pid=os.getpid())
            hold(salloc, name)
            words.seek(0)
            lines = words.read().decode(errors="replace").strip().splitlines()
            say(event="error", text="; ".join(lines[-2:])[-400:] or "salloc ended with %s" % salloc.returncode)
        except BrokenPipeError:
            pass  # the operator has gone
        finally:
            give_back(salloc)
    return 1


def hold(salloc: "subprocess.Popen[bytes]", name: str) -> None:
    """Tell what Slurm waits for, then that the nodes are held; return when salloc has ended."""
    known: List[str] = []
    is_held = False
    while True:
        try:
            salloc.wait(POLL_S)
            return
        except subprocess.TimeoutExpired:
            pass
        job = [] if is_held else queued(name)
        is_held = is_held or job[1:2] == ["RUNNING"]
        if job and job != known:
            number, state, reason = known = job
            say(event="held" if is_held else "waits", job=number, state=state, reason=reason)
        say(event="beat")


def queued(name: str) -> List[str]:
    """Return number, state and reason of the job; empty where Slurm does not tell."""
    argv = ["squeue", "--noheader", "--name=" + name, "--format=%i|%T|%r"]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=ASK_S, check=False)
    except subprocess.TimeoutExpired:
        return []
    row = done.stdout.decode(errors="replace").strip().split("|", 2)
    return row if len(row) == 3 else []


def give_back(salloc: "subprocess.Popen[bytes]") -> None:
    """End salloc: its program where it has the nodes, itself where it waits for them."""
    if salloc.stdin is not None:
        salloc.stdin.close()
    try:
        salloc.wait(POLL_S)
    except subprocess.TimeoutExpired:
        salloc.terminate()
        salloc.wait(GIVE_BACK_S)

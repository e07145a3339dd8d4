"""Taking a lab down: everything that may exist of it, found by its journal and by names that follow from its folder."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from nodectl.errors import LabError
from nodectl.lab.cgroups import remove_groups
from nodectl.lab.disk import mounts_below, processes_of, remove_loops
from nodectl.lab.network import ip
from nodectl.lab.state import LabFolder
from nodectl.lab.syscalls import MNT_DETACH, unmount

_DEATH_S = 20.0
_REMOVALS = 4


def down(folder: LabFolder) -> bool:
    """Remove every trace of the lab; False if there was none. Safe to repeat, and after any crash."""
    existed = folder.path.exists()
    state = None
    with contextlib.suppress(LabError):  # a damaged journal: the search for processes and mounts finds the rest
        state = folder.read()
    recorded = [*(host.process for host in state.hosts), state.wire] if state else []
    _kill_all(process.pid for process in recorded if process and process.alive)
    # all other processes that live on the hosts' files
    _kill_all(pid for pid in processes_of(folder.path) if pid != os.getpid())
    if Path("/sys/class/net", folder.uplink).exists():
        ip(["link", "delete", folder.uplink])
    remove_groups(folder.cgroup)
    for place in mounts_below(folder.path):
        unmount(place, MNT_DETACH)
    if state and state.spec.disk_bytes:
        remove_loops(folder.store, state.former_loops)
    _remove_files(folder)
    return existed


def _kill_all(pids: Iterable[int]) -> None:
    waiting: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(pid)
            waiting[descriptor] = pid
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    deadline = time.monotonic() + _DEATH_S
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN)
    left = set(waiting)
    while left and time.monotonic() < deadline:
        for descriptor, _ in poll.poll(1000):
            poll.unregister(descriptor)
            left.discard(descriptor)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(waiting[descriptor], os.WNOHANG)
    for descriptor in waiting:
        os.close(descriptor)
    if left:
        names = ", ".join(str(waiting[descriptor]) for descriptor in left)
        raise LabError(f"processes do not end: {names}", "look at /proc/PID/stack, then `nodectl lab down` again")


def _remove_files(folder: LabFolder) -> None:
    if mounts_below(folder.path):
        raise LabError(f"something is still mounted below {folder.path}", "run `nodectl lab down` again")
    for attempt in range(_REMOVALS):  # a host of a launcher that was killed may be on its last steps
        command = ["rm", "-rf", "--one-file-system", "--", str(folder.path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        time.sleep(0.1 * (attempt + 1))
    else:
        raise LabError(f"{folder.path} cannot be removed: {done.stderr.strip()[:300]}", "run `nodectl lab down` again")
    with contextlib.suppress(OSError):  # another lab is there
        folder.path.parent.rmdir()

"""Ways to die and ways to hang, each a real program over torchrun and gloo, and what must be said of it.

NCCL's own texts need GPUs: where a rank prints one, it is a recorded text, and the scenario's name says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from nodectl.payload.jobs import kernel

LAUNCHER, VENV = "/opt/nodectl-deaths/launch", "/opt/nodectl-deaths/venv"
DMESG = "/usr/local/bin/dmesg"  # before /usr/bin on a lab host's path
# an environment as the pytorch role makes it, over the packages that the lab's share holds
MAKE_VENV = f"""set -e
test -d /srv/nodectl/venv/lib
mkdir -p {VENV}/bin
cp /srv/nodectl/venv/pyvenv.cfg {VENV}
ln -sfn /srv/nodectl/venv/lib {VENV}/lib
ln -sf $(readlink -f /srv/nodectl/venv/bin/python) {VENV}/bin/python
printf '#!%s/bin/python\\nfrom torch.distributed.run import main\\nmain()\\n' {VENV} > {VENV}/bin/torchrun
chmod 755 {VENV}/bin/torchrun
"""
_HEAD = """
import os, sys, time, signal, traceback
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds={timeout_s}))
rank = dist.get_rank()
one = torch.ones(4)
dist.all_reduce(one)
def work():
    while True:
        dist.all_reduce(one)
        time.sleep(0.1)
if rank == {rank}:
    os.write(1, b"victim up\\n")
"""


SHORT_S = 10
ANY = -1  # all ranks end alike
NOBODY = (None,)  # which rank is at fault is not known


@dataclass(frozen=True)
class Case:
    """`body` runs in the victim's branch after a first all-reduce; then all ranks do what `after` says.

    `act` does something to a running job from outside. What must be said: class, rank (None: of a host; more than one:
    any of these), `words` in the message, `evidence` in message or evidence; what may be said nowhere is `never`.
    """

    name: str
    category: str
    body: str = "pass"
    rank: int = 1
    blamed: int | tuple[int | None, ...] | None = 1
    words: tuple[str, ...] = ()
    after: str = "work()"
    timeout_s: int = 600
    nproc: int = 1
    options: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    script: str = ""
    act: Callable[[Lab, str], None] | None = None
    not_words: tuple[str, ...] = field(default=())
    evidence: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def text(self) -> str:
        """The whole script."""
        return (
            self.script
            or f"{_HEAD.format(timeout_s=self.timeout_s, rank=self.rank)}{indent(self.body, ' ' * 4)}\n{self.after}\n"
        )


class Lab:
    """An operator's shell with three of the lab's hosts."""

    def __init__(self, lab: Any, nodectl: Any, folder: Path) -> None:
        self.lab, self.nodectl, self.folder = lab, nodectl, folder
        self.hosts = lab.hosts[:3]

    def run(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = self.nodectl(
            "-i", self.lab.inventory, "-l", ",".join(self.hosts), *args, check=False, timeout=300, **more
        )
        return done

    def begin(self, case: Case) -> str:
        """Launch and leave it; the job's id."""
        script = self.folder / "train.py"
        script.write_text(case.text())
        options = ["-e", f"launcher_path={LAUNCHER}", "--venv", VENV, "--nproc-per-node", str(case.nproc), "--detach"]
        done = self.run("launch", *options, *case.options, str(script), "--", *case.args)
        assert done.returncode == 0, done.stderr
        return str(done.stdout.strip())

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("--output", "json", "jobs", "why", job_id).stdout)["jobs"][0]
        return found

    def wait_up(self, job_id: str) -> None:
        """Until the victim has spoken."""
        self.wait(lambda: "victim up" in self.run("jobs", "logs", job_id).stdout, "the ranks did not start")

    def wait_ended(self, job_id: str) -> dict[str, Any]:
        self.wait(lambda: self.job(job_id)["state"] in ("failed", "finished", "stopped"), "it did not end")
        return self.job(job_id)

    def wait(self, condition: Callable[[], bool], words: str, timeout_s: float = 240) -> None:
        until = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < until, words
            time.sleep(1)

    def pid(self, job_id: str, rank: int) -> int:
        """A rank's process, as its host sees it."""
        find = f"grep -lz '^NODECTL_JOB_ID={job_id}$' /proc/[0-9]*/environ 2>/dev/null | xargs grep -lz '^RANK={rank}$'"
        return min(int(line.split("/")[2]) for line in self.lab.ssh(self.hosts[rank], find).split())

    def signal(self, job_id: str, rank: int, name: str) -> None:
        self.lab.ssh(self.hosts[rank], f"kill -{name} {self.pid(job_id, rank)}")


def _signal(name: str) -> Callable[[Lab, str], None]:
    return lambda lab, job_id: lab.signal(job_id, 1, name)


def _kill_launcher(lab: Lab, job_id: str, name: str = "KILL") -> None:
    lab.lab.ssh(lab.hosts[1], f"kill -{name} $(pgrep -f '^{VENV}/bin/python {VENV}/bin/torchrun' | head -1)")


# a control group of version 1 below this machine's own, where lab hosts see it (`MOUNT_GROUPS`)
_ROWS = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
_ABOVE = next((path for _, names, path in _ROWS if "memory" in names.split(",")), "/")
GROUP = Path("/sys/fs/cgroup/memory") / _ABOVE.strip("/") / f"nodectl-test-{os.getpid()}"
# lab hosts have control groups of version 2 alone, without controllers
MOUNT_GROUPS = "mkdir -p /run/groups/memory && mount -t cgroup -o memory none /run/groups/memory"
LEAVE_GROUPS = "umount /run/groups/*"


def _made_group() -> Path:
    if not GROUP.parent.is_dir():
        pytest.skip("no memory groups of version 1 on this machine")
    GROUP.mkdir(exist_ok=True)
    return GROUP


def _outer_pid(lab: Lab, job_id: str) -> int:
    """Rank 1's process, as this machine sees it."""
    parent = next(host["pid"] for host in lab.lab.status["hosts"] if host["name"] == lab.hosts[1])
    inside = lab.pid(job_id, 1)
    return next(pid for pid, (host, own) in _pids().items() if own == inside and host == _namespace(parent))


def _limit_memory(lab: Lab, job_id: str) -> None:
    group = _made_group()
    (group / "memory.limit_in_bytes").write_text(str(600 << 20))
    (group / "cgroup.procs").write_text(str(_outer_pid(lab, job_id)))
    time.sleep(3)  # the limit is there for longer than a blink
    lab.lab.ssh(lab.hosts[1], "touch /tmp/eat")


def _kill_beside_memory(lab: Lab, job_id: str) -> None:
    """SIGKILL by hand, after the kernel has killed another process of the machine for memory."""
    group = _made_group()
    (group / "memory.limit_in_bytes").write_text(str(60 << 20))
    before = kernel.host_kills()
    eats = "import os; open(os.environ['GROUP'] + '/cgroup.procs', 'w').write('0'); bytearray(1 << 30)"
    subprocess.run([sys.executable, "-c", eats], env={"GROUP": str(group)}, check=False)
    assert kernel.host_kills() != before
    time.sleep(3)
    lab.signal(job_id, 1, "KILL")


def _xid(lab: Lab, job_id: str) -> None:
    """The kernel's log of a host without a GPU: a dmesg that prints a recorded line with the rank's pid."""
    line = f"NVRM: Xid (PCI:0000:10:1c): 79, pid={lab.pid(job_id, 1)}, name=python, GPU has fallen off the bus."
    text = f'#!/bin/sh\\necho "[$(cut -d " " -f 1 /proc/uptime)] {line}"\\n'
    lab.lab.ssh(lab.hosts[1], f"printf '{text}' > {DMESG} && chmod 755 {DMESG} && touch /tmp/eat")


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def _pids() -> dict[int, tuple[str, int]]:
    """By pid here: the network namespace, which is the host's, and the pid one namespace below this one."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            status = (folder / "status").read_text()
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
            found[int(folder.name)] = (_namespace(int(folder.name)), int(numbers[1]))
        except (OSError, ValueError, IndexError, StopIteration):
            continue
    return found


def _power_off(lab: Lab, job_id: str) -> None:
    name = lab.lab.status["name"]
    lab.nodectl("lab", "fault", "link-down", lab.hosts[1], "--name", name)


_WATCHDOG = (
    "[rank1]:[E419 10:42:28.858931807 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=4486, OpType=ALLTOALL, NumelIn=46684160, NumelOut=46684160, Timeout(ms)=600000)"
    " ran for 600013 milliseconds before timing out.\n"
)

_FROM_A_CAUSE = """
try:
    open('/data/shard-7')
except OSError as error:
    raise RuntimeError('loading failed') from error
"""
_HANDLED = """
try:
    int('x')
except ValueError:
    traceback.print_exc()
dist.destroy_process_group()
sys.exit(3)
"""
_EAT = """
while not os.path.exists('/tmp/eat'):
    time.sleep(0.1)
kept = []
while True:
    kept.append(bytearray(16 << 20))
"""
_FULL = """
small = os.environ['NODECTL_CHECKPOINT_DIR']
assert os.system(f'mount -t tmpfs -o size=1m none {small}') == 0
torch.save(torch.ones(1 << 20), f'{small}/checkpoint.pt')
"""
_GPU_GONE = """
while not os.path.exists('/tmp/eat'):
    time.sleep(0.1)
raise RuntimeError('CUDA error: unspecified launch failure')
"""
_ARGUMENTS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--epochs')
parser.parse_args()
"""
_THREAD = """
import threading, queue
def load():
    raise ValueError('bad shard in a thread')
thread = threading.Thread(target=load, name='loader')
thread.start()
thread.join()
"""
_HOOKED = """
sys.excepthook = lambda *_: sys.exit(7)
raise KeyError('sample')
"""
_OTHER_LOGIN = """
os.setgid(65534)
os.setuid(65534)
raise ValueError('bad shard')
"""
_LOADER_KILLED = """
from torch.utils.data import DataLoader, Dataset
class Shards(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)
next(iter(DataLoader(Shards(), num_workers=1)))
"""
_BEGIN = """
import os, socket, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
rank = int(os.environ['RANK'])
timeout = timedelta(seconds=15)
"""
_NO_INTERFACE = (
    _BEGIN
    + """
if rank == 1:
    os.environ['GLOO_SOCKET_IFNAME'] = 'eno77'
dist.init_process_group('gloo', timeout=timeout)
"""
)
_WRONG_PORT = (
    _BEGIN
    + """
if rank == 2:
    os.environ['MASTER_PORT'] = '18098'
dist.init_process_group('gloo', timeout=timeout)
"""
)

DEATHS = [
    Case("an_exception_of_lines", "script_error", "raise ValueError('bad\\nline two')", words=("bad\nline two",)),
    Case("an_exception_with_its_cause", "data_missing", _FROM_A_CAUSE, words=("loading failed",)),
    Case("a_handled_traceback_before_exit_3", "exit", _HANDLED, words=("exit status 3",), not_words=("ValueError",)),
    Case("sigkill_from_outside", "killed_from_outside", act=_signal("KILL"), words=("SIGKILL",)),
    Case("a_crash_in_native_code", "crash", "import ctypes; ctypes.string_at(0)", words=("SIGSEGV",)),
    Case("the_memory_killer", "host_out_of_memory", _EAT, act=_limit_memory, words=("SIGKILL", "memory killer")),
    Case("a_full_disk", "disk_full", "open('/dev/full', 'wb').write(bytes(9000))", words=("No space left",)),
    Case("a_full_disk_that_torch_does_not_name", "disk_full", _FULL, options=("--checkpoint", "/tmp/small")),
    Case("an_xid_recorded", "xid", _GPU_GONE, act=_xid, words=("CUDA error",)),
    Case("torchrun_killed", "launcher_killed", act=_kill_launcher, blamed=None, words=("torchrun", "SIGKILL")),
    Case("exit_0_inside_a_collective", "left_early", "sys.exit(0)", words=("exit status 0",)),
    Case("a_missing_module", "import_error", "import no_such_module", words=("no_such_module",)),
    Case("a_bad_argument", "bad_argument", script=_ARGUMENTS, args=("--epohcs", "3"), blamed=ANY, words=("--epohcs",)),
    Case("a_host_gone", "host_lost", act=_power_off, blamed=None),
    Case(
        "sigkill_by_hand_while_another_was_killed_for_memory",
        "killed_from_outside",
        act=_kill_beside_memory,
        words=("SIGKILL",),
        evidence=("before it died",),
        never=("killer ended it", "by the kernel"),
    ),
    Case(
        "an_exception_of_a_thread_then_exit_1",
        "exit",
        f"{_THREAD}dist.destroy_process_group()\nsys.exit(1)",
        words=("exit status 1",),
        evidence=("a traceback that did not end it: ValueError: bad shard in a thread",),
    ),
    Case("sys_exit_in_a_hook_for_exceptions", "script_error", _HOOKED, words=("KeyError",)),
    Case("sigint_from_outside", "interrupted", "time.sleep(1000)", act=_signal("INT")),
    Case("an_exception_of_another_login", "script_error", _OTHER_LOGIN, words=("ValueError: bad shard",)),
    Case(
        "twelve_elements_against_eight",
        "collective_mismatch",
        after="one = torch.ones(12 if rank == 1 else 8)\nwork()",
        timeout_s=SHORT_S,
        evidence=("[[12]]", "[[8]]"),
        never=("raise the process group's timeout",),
    ),
    Case("a_loader_worker_killed", "helper_killed", _LOADER_KILLED),
    Case("a_wrong_port_of_the_store", "rendezvous", script=_WRONG_PORT, rank=2, blamed=2, words=("the store",)),
    Case("an_interface_that_is_not_there", "network_interface", script=_NO_INTERFACE),
]

_NEVER_JOINS = """
import os, time
from datetime import timedelta
import torch.distributed as dist
if os.environ['RANK'] == '1':
    time.sleep(1000)
dist.init_process_group('gloo', timeout=timedelta(seconds=15))
"""

_GROUPS = """
pairs = [dist.new_group([0, 1], timeout=timedelta(seconds={timeout_s})) for _ in range(2)]
if rank < 2:
    for group in pairs if rank == 0 else pairs[::-1]:
        dist.all_reduce(one, group=group)
dist.all_reduce(one)
"""
_ONE_PAIR = """
pair = dist.new_group([0, 1], timeout=timedelta(seconds={timeout_s}))
if rank == 1:
    time.sleep(1000)
if rank == 0:
    dist.all_reduce(one, group=pair)
dist.all_reduce(one)
"""

HANGS = [
    Case(
        "an_exception_ends_a_thread_and_the_rank_waits_for_it",
        "collective_timeout",
        f"{_THREAD}queue.Queue().get()",
        timeout_s=SHORT_S,
        words=("train.py:",),
    ),
    Case(
        "two_groups_in_different_order",
        "collective_mismatch",
        after=_GROUPS.format(timeout_s=12),
        timeout_s=12,
        blamed=NOBODY,
        evidence=("rank 0", "rank 1"),
        never=("raise the process group's timeout",),
    ),
    Case(
        "another_root",
        "collective_timeout",
        after="dist.broadcast(one, 1 if rank == 1 else 0)\nwork()",
        timeout_s=12,
        blamed=NOBODY,
        words=("gloo:broadcast number 2", "root", "not known"),
    ),
    Case(
        "one_of_a_group_of_two_stays_away",
        "collective_timeout",
        after=_ONE_PAIR.format(timeout_s=12),
        timeout_s=12,
        words=("train.py:",),
    ),
    Case(
        "a_collective_in_a_branch_of_one_rank",
        "collective_mismatch",
        "dist.all_reduce(one)",
        after="dist.barrier()\ntime.sleep(1000)",
        timeout_s=12,
    ),
    Case(
        "one_rank_receives_what_nobody_sends",
        "collective_timeout",
        "dist.recv(one, 0)",
        timeout_s=SHORT_S + 2,
        words=("recv",),
    ),
    Case("one_rank_sleeps", "collective_timeout", "time.sleep(1000)", timeout_s=SHORT_S, words=("train.py:",)),
    Case("one_rank_computes", "collective_timeout", "while True: pass", timeout_s=SHORT_S, words=("train.py:",)),
    Case("one_rank_is_stopped", "stopped", act=_signal("STOP"), timeout_s=SHORT_S, words=("stopped",)),
    Case(
        "a_barrier_that_names_who_is_missing",
        "collective_timeout",
        "time.sleep(1000)",
        after="dist.monitored_barrier(timeout=timedelta(seconds=8))",
        words=("train.py:",),
    ),
    Case("one_rank_never_joins", "rendezvous", script=_NEVER_JOINS, words=("train.py:",)),
    Case(
        "one_rank_calls_another_collective",
        "collective_mismatch",
        "dist.broadcast(one, 1)",
        timeout_s=20,
        words=("broadcast",),
    ),
    Case(
        "nccls_watchdog_recorded",
        "collective_timeout",
        f"os.write(2, {_WATCHDOG.encode()!r}); os.abort()",
        words=("ALLTOALL",),
    ),
]

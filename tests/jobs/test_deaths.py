"""Ways to die and ways to hang, each made for real: torchrun over gloo on three lab hosts, and what `jobs why` says.

NCCL's own texts need GPUs: where a rank prints one, it is a recorded text, and the scenario's name says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from jinja2 import Environment

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_ROOT = Path(__file__).resolve().parents[2]
_LAUNCHER, _VENV = "/opt/nodectl-deaths/launch", "/opt/nodectl-deaths/venv"
_DMESG = "/usr/local/bin/dmesg"  # before /usr/bin on a lab host's path
# an environment as the pytorch role makes it, over the packages that the lab's share holds
_MAKE_VENV = f"""set -e
test -d /srv/nodectl/venv/lib
mkdir -p {_VENV}/bin
cp /srv/nodectl/venv/pyvenv.cfg {_VENV}
ln -sfn /srv/nodectl/venv/lib {_VENV}/lib
ln -sf $(readlink -f /srv/nodectl/venv/bin/python) {_VENV}/bin/python
printf '#!%s/bin/python\\nfrom torch.distributed.run import main\\nmain()\\n' {_VENV} > {_VENV}/bin/torchrun
chmod 755 {_VENV}/bin/torchrun
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


_SHORT_S = 10
ANY = -1  # all ranks end alike


@dataclass(frozen=True)
class Case:
    """`body` runs in all ranks after a first all-reduce, as the victim's branch; then all work on for ever.

    `act` does something to a running job from outside. What must be said: class, rank (None: of a host), words.
    """

    name: str
    category: str
    body: str = "pass"
    rank: int = 1
    blamed: int | None = 1
    words: tuple[str, ...] = ()
    after: str = "work()"
    timeout_s: int = 600
    nproc: int = 1
    options: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    script: str = ""
    act: Callable[[Lab, str], None] | None = None
    not_words: tuple[str, ...] = field(default=())

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

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = self.nodectl(
            "-i", self.lab.inventory, "-l", ",".join(self.hosts), *args, check=False, timeout=300
        )
        return done

    def begin(self, case: Case) -> str:
        """Launch and leave it; the job's id."""
        script = self.folder / "train.py"
        script.write_text(case.text())
        options = ["--launcher", _LAUNCHER, "--venv", _VENV, "--nproc-per-node", str(case.nproc), "--detach"]
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
    lab.lab.ssh(lab.hosts[1], f"kill -{name} $(pgrep -f '^{_VENV}/bin/python {_VENV}/bin/torchrun' | head -1)")


def _kill_second(lab: Lab, job_id: str) -> None:
    """Rank 3, the second of the second host."""
    find = "grep -lz '^RANK=3$' /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3"
    lab.lab.ssh(lab.hosts[1], f"kill -KILL $({find} | sort -n | head -1)")


def _end_launcher(lab: Lab, job_id: str) -> None:
    _kill_launcher(lab, job_id, "TERM")


def _out_of_memory(lab: Lab, job_id: str) -> None:
    """A control group with a limit, made outside, because lab hosts have no memory controller of their own."""
    parent = next(host["pid"] for host in lab.lab.status["hosts"] if host["name"] == lab.hosts[1])
    inside = lab.pid(job_id, 1)
    outer = next(pid for pid, (host, own) in _pids().items() if own == inside and host == _namespace(parent))
    group = Path("/sys/fs/cgroup/memory") / f"nodectl-test-{os.getpid()}"
    if not group.parent.is_dir():
        pytest.skip("no memory control groups of version 1 on this machine")
    group.mkdir(exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(str(600 << 20))
    (group / "cgroup.procs").write_text(str(outer))
    lab.lab.ssh(lab.hosts[1], "touch /tmp/eat")


def _xid(lab: Lab, job_id: str) -> None:
    """The kernel's log of a host without a GPU: a dmesg that prints a recorded line with the rank's pid."""
    line = f"NVRM: Xid (PCI:0000:10:1c): 79, pid={lab.pid(job_id, 1)}, name=python, GPU has fallen off the bus."
    text = f'#!/bin/sh\\necho "[$(cut -d " " -f 1 /proc/uptime)] {line}"\\n'
    lab.lab.ssh(lab.hosts[1], f"printf '{text}' > {_DMESG} && chmod 755 {_DMESG} && touch /tmp/eat")


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
_NCCL_OOM = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, unhandled"
    " cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclUnhandledCudaError: Call to CUDA"
    " function failed.\nLast error:\nCuda failure 2 'out of memory'"
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
sys.exit(3)
"""
_EAT = """
while not os.path.exists('/tmp/eat'):
    time.sleep(0.1)
kept = []
while True:
    kept.append(bytearray(16 << 20))
"""
_TOO_MUCH = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
kept = bytearray(64 << 30)
"""
_FULL = """
os.makedirs('/tmp/small', exist_ok=True)
assert os.system('mount -t tmpfs -o size=1m none /tmp/small') == 0
torch.save(torch.ones(1 << 20), '/tmp/small/checkpoint.pt')
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
_OLD_LIBRARY = "raise ImportError('libstdc++.so.6: version `GLIBCXX_3.4.32\\' not found')"

DEATHS = [
    Case("an_exception_of_lines", "script_error", "raise ValueError('bad\\nline two')", words=("bad\nline two",)),
    Case("an_exception_with_its_cause", "data_missing", _FROM_A_CAUSE, words=("loading failed",)),
    Case("a_handled_traceback_before_exit_3", "exit", _HANDLED, words=("exit status 3",), not_words=("ValueError",)),
    Case("sigkill_from_outside", "killed_from_outside", act=_signal("KILL"), words=("SIGKILL",)),
    Case("sigterm_from_outside", "killed_from_outside", act=_signal("TERM"), words=("SIGTERM",)),
    Case("a_crash_in_native_code", "crash", "import ctypes; ctypes.string_at(0)", words=("SIGSEGV",)),
    Case("the_memory_killer", "host_out_of_memory", _EAT, act=_out_of_memory, words=("SIGKILL", "memory killer")),
    Case("the_hosts_memory_as_an_exception", "host_out_of_memory", _TOO_MUCH, words=("MemoryError",)),
    Case("a_full_disk", "disk_full", "open('/dev/full', 'wb').write(bytes(9000))", words=("No space left",)),
    Case("a_full_disk_that_torch_does_not_name", "disk_full", _FULL),
    Case("an_xid_recorded", "xid", _GPU_GONE, act=_xid, words=("CUDA error",)),
    Case("torchrun_killed", "launcher_killed", act=_kill_launcher, blamed=None, words=("torchrun", "SIGKILL")),
    Case("torchrun_asked_to_end", "launcher_killed", act=_end_launcher, blamed=None, words=("torchrun", "SIGTERM")),
    Case("exit_0_inside_a_collective", "left_early", "sys.exit(0)", words=("exit status 0",)),
    Case("a_missing_module", "import_error", "import no_such_module", words=("no_such_module",)),
    Case("a_bad_argument", "bad_argument", script=_ARGUMENTS, args=("--epohcs", "3"), blamed=ANY, words=("--epohcs",)),
    Case(
        "a_rank_of_two_on_a_host", "killed_from_outside", nproc=2, rank=3, blamed=3, act=_kill_second, words=("KILL",)
    ),
    Case("missing_data", "data_missing", "open('/data/train/shard-00007.tar')", words=("shard-00007",)),
    Case("a_version_that_does_not_fit", "version_mismatch", _OLD_LIBRARY, words=("GLIBCXX",)),
    Case("different_sizes_in_one_collective", "collective_mismatch", "dist.all_reduce(torch.ones(9000))"),
    Case("a_host_gone", "host_lost", act=_power_off, blamed=None),
    Case("a_gpus_memory_recorded", "gpu_out_of_memory", f"raise RuntimeError({_NCCL_OOM!r})", words=("out of memory",)),
]

_NEVER_JOINS = """
import os, time
from datetime import timedelta
import torch.distributed as dist
if os.environ['RANK'] == '1':
    time.sleep(1000)
dist.init_process_group('gloo', timeout=timedelta(seconds=15))
"""

HANGS = [
    Case("one_rank_sleeps", "collective_timeout", "time.sleep(1000)", timeout_s=_SHORT_S, words=("train.py:",)),
    Case("one_rank_computes", "collective_timeout", "while True: pass", timeout_s=_SHORT_S, words=("train.py:",)),
    Case("one_rank_is_stopped", "stopped", act=_signal("STOP"), timeout_s=_SHORT_S, words=("stopped",)),
    Case(
        "one_rank_waits_for_a_lock",
        "collective_timeout",
        "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
        timeout_s=_SHORT_S,
        words=("train.py:",),
    ),
    Case(
        "one_rank_reads_from_a_pipe",
        "collective_timeout",
        "ends = os.pipe(); os.read(ends[0], 1)",
        timeout_s=_SHORT_S,
        words=("train.py:",),
    ),
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


@pytest.fixture(scope="module")
def prepared(lab4: Any) -> Any:
    """The launch script and torch on each host; taken away after that."""
    if not (Path.home() / ".cache").exists() or "lib" not in lab4.ssh(lab4.hosts[0], "ls /srv/nodectl/venv 2>&1"):
        pytest.skip("the lab's share holds no torch: `make test` puts it there")
    text = (_ROOT / "templates" / "launch.sh.j2").read_text()
    rendered = Environment(autoescape=False).from_string(text).render(profiles="test", venv=_VENV) + "\n"  # noqa: S701
    for host in lab4.hosts[:3]:
        place = f"mkdir -p {Path(_LAUNCHER).parent} && cat > {_LAUNCHER} && chmod 755 {_LAUNCHER}"
        ssh = ["ssh", "-F", lab4.ssh_config, host]
        subprocess.run([*ssh, place], input=rendered, text=True, check=True)
        subprocess.run([*ssh, _MAKE_VENV], check=True)
    return lab4


@pytest.fixture
def lab(prepared: Any, nodectl: Any, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(prepared, nodectl, tmp_path)
    yield made
    nodectl("lab", "heal", "--name", prepared.status["name"])
    made.run("jobs", "stop", "last")
    made.run("jobs", "clean")
    prepared.ssh(made.hosts[1], f"rm -f /tmp/eat {_DMESG}")
    group = Path("/sys/fs/cgroup/memory") / f"nodectl-test-{os.getpid()}"
    if group.is_dir():
        group.rmdir()


@pytest.mark.parametrize("case", [case for case in HANGS if case.timeout_s == _SHORT_S], ids=lambda case: case.name)
def test_a_running_job_says_who_waits_for_whom(lab: Lab, case: Case) -> None:
    job_id = lab.begin(replace(case, timeout_s=600))
    lab.wait_up(job_id)
    if case.act is not None:
        case.act(lab, job_id)
    time.sleep(2)  # until the others wait
    job = lab.job(job_id)
    look = job["look"]
    assert (job["state"], look["missing"]) == ("running", [1]), json.dumps(look, indent=1)
    assert "rank 0, 2 wait in all_reduce for rank 1: it is " in look["verdict"]
    assert case.words[0] in look["verdict"]
    assert {rank["rank"]: rank["waits"] for rank in look["ranks"]} == {0: True, 1: False, 2: True}
    assert lab.run("jobs", "why", job_id).stdout.rstrip().endswith(look["verdict"])
    assert lab.job(job_id)["state"] == "running"


@pytest.mark.parametrize("case", [*DEATHS, *HANGS], ids=lambda case: case.name)
def test_the_first_cause_its_rank_and_its_class(lab: Lab, case: Case) -> None:
    job_id = lab.begin(case)
    if case.act is not None:
        lab.wait_up(job_id)
        case.act(lab, job_id)
    job = lab.wait_ended(job_id)
    first = job["first_failure"]
    assert job["state"] == "failed", job
    assert first is not None, job
    blamed = first["rank"] if case.blamed == ANY else case.blamed
    blamed_host = 1 if case.blamed is None else (case.blamed or 0) // case.nproc
    assert (first["class"], first["rank"]) == (case.category, blamed), json.dumps(job, indent=1)
    if case.blamed != ANY:
        assert first["host"] == lab.hosts[blamed_host], first
    for word in case.words:
        assert word in first["message"], first
    for word in case.not_words:
        assert word not in first["message"], first
    assert first["remedy"], first

"""Ways to hang with nobody at the terminal, and what `jobs why` says of them after the end of the job.

Torchrun over gloo on three hosts; the launching nodectl is killed as soon as its job has started. Jobs that do not
disturb each other run together. `# here` marks the line that must be named.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.deaths import LAUNCHER, VENV, Case, Lab, _power_off

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1200)]

_LIMIT_S = 150
_TOGETHER = 4
_STATE = "/root/.local/state/nodectl/jobs"
_STEPS = """
def work():
    for step in range(1, 3000):
        if step == 60 and rank == 1:
            load()
        dist.all_reduce(one)
        if rank == 0:
            print(f"step {step}/3000 loss 0.5", flush=True)
        time.sleep(0.1)
work()
"""
_LOADER = """
from torch.utils.data import DataLoader, Dataset
class Shards(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 3:
            {waits}  # here
        return index
def load():
    for _ in DataLoader(Shards(), num_workers={workers}):
        pass
"""
_FIFO = "os.path.exists('/tmp/{0}') or os.mkfifo('/tmp/{0}')\n"
_LOCKED = """
import fcntl, subprocess
def load():
    subprocess.Popen(["flock", "/tmp/shard.lock", "sleep", "1000"])
    time.sleep(2)
    fcntl.flock(open("/tmp/shard.lock"), fcntl.LOCK_EX)  # here
"""
_BARRIER = """
for step in range(1, 60):
    dist.all_reduce(one)
    print(f"step {step}/1000 loss 0.5", flush=True)
    time.sleep(0.1)
if rank == 1:
    dist.barrier()  # here
dist.all_reduce(one)
"""
_GOOD_BUT_ONE = """
for step in range(1, 60):
    dist.all_reduce(one)
    print(f"step {step}/1000 loss 0.5", flush=True)
    time.sleep(0.1)
dist.destroy_process_group()
if rank == 1:
    time.sleep(1000)  # here
"""


def _hang(name: str, load: str, says: tuple[str, ...] = (), **more: Any) -> Case:
    """Rank 1 stands in `load` at step 60, and the others wait in all_reduce."""
    text = load if "def load" in load else f"def load():\n    {load}  # here"
    return Case(name, "time_limit", after=f"{text}\n{_STEPS}", words=("wait in all_reduce for rank 1", *says), **more)


def _stop(lab: Lab, job_id: str) -> None:
    time.sleep(5)
    lab.signal(job_id, 1, "STOP")


def _fill(lab: Lab, job_id: str) -> None:
    """Fill the disk of rank 1's host, which holds its job's folder and the black box's reserve."""
    lab.wait(lambda: "reserve" in lab.lab.ssh(lab.hosts[1], f"ls {_STATE}/{job_id}/black_box"), "no reserve")
    fill = f"fallocate -l 1000m {_STATE}/fill; cat /dev/zero > {_STATE}/fill2; dd if=/dev/zero of={_STATE}/fill3 bs=1k"
    lab.lab.ssh(lab.hosts[1], fill)


def _kill_supervisor(lab: Lab, job_id: str) -> None:
    """Kill rank 1's supervisor while its black box is taken: some of it is on the disk."""
    folder = f"{_STATE}/{job_id}"
    find = f"grep -l ranks.: {folder}/black_box/*.suspicion.jsonl"
    pid = f'python3 -c \'import json; print(json.load(open("{folder}/state.json"))["pid"])\''
    kill = f"until {find} >/dev/null 2>&1; do sleep 0.05; done; kill -KILL $({pid}) && echo done"
    there = f"timeout 50 sh -c {_quoted(kill)}"
    lab.wait(lambda: "done" in lab.lab.ssh(lab.hosts[1], there), "no black box was taken")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
HANGS = [
    _hang("does_not_call_a_collective", "while not os.path.exists('/tmp/never'): time.sleep(1)"),
    Case(
        "calls_another_collective",
        "time_limit",
        after=_STEPS.replace("load()", "dist.broadcast(one, 1)  # here"),
        words=("rank 1 is in broadcast", "the others in all_reduce"),
    ),
    _hang(
        "sleeps_in_a_data_loader", _LOADER.format(waits="time.sleep(1000)", workers=0, mark=""), ("clock_nanosleep",)
    ),
    _hang(
        "a_data_loaders_worker_hangs",
        _FIFO.format("shard-7") + _LOADER.format(waits="open('/tmp/shard-7').read()", workers=2),
        ("data-loader worker", "of /tmp/shard-7"),
    ),
    Case(
        "is_stopped",
        "time_limit",
        after=_STEPS.replace("load()", "pass"),
        act=_stop,
        words=("for rank 1: it is stopped (SIGSTOP",),
    ),
    _hang(
        "opens_a_pipe", _FIFO.format("feed") + "def load():\n    open('/tmp/feed')  # here", ("openat() of /tmp/feed",)
    ),
    Case(
        "a_barrier_of_one_rank",
        "time_limit",
        after=_BARRIER,
        words=("rank 1 is in barrier", "the others in all_reduce"),
    ),
    _hang("computes_for_ever", "while True: pass", ("and computes",)),
    _hang("waits_for_a_child", "import subprocess; subprocess.run(['sleep', '1000'])", ("(sleep 1000)",)),
    _hang("a_lock_of_a_file", _LOCKED, ("flock() of /tmp/shard.lock",)),
    # a mutex that the thread holds already: the interpreter's lock stays held, too
    _hang(
        "deadlocks_in_native_code",
        "import ctypes; c, m = ctypes.PyDLL(None), bytes(40); c.pthread_mutex_lock(m); c.pthread_mutex_lock(m)",
        ("futex()",),
    ),
    Case("all_end_but_one", "time_limit", after=_GOOD_BUT_ONE, words=("rank 1: it is at",)),
]
ENDS = [
    *HANGS,
    Case("the_time_is_over", "time_limit", after=_STEPS.replace("load()", "pass"), blamed=None, words=("time limit",)),
]
_GONE = Case("a_host_gone", "host_lost", after=_STEPS.replace("load()", "pass"), act=_power_off, blamed=None)
_FULL = [
    replace(case, name=f"{case.name}_on_a_full_disk", act=_fill, evidence=("is full",))
    for case in HANGS
    if case.name in ("sleeps_in_a_data_loader", "a_lock_of_a_file")
]
_SUPERVISOR = [
    Case(
        f"{case.name}_and_the_supervisor_is_killed",
        "supervisor",
        after=case.after,
        blamed=None,
        act=_kill_supervisor,
        words=case.words,
    )
    for case in HANGS
    if case.name in ("opens_a_pipe", "waits_for_a_child")
]
_SPIED = [
    replace(case, name=f"{case.name}_seen_by_py_spy")
    for case in HANGS
    if case.name in ("a_data_loaders_worker_hangs", "is_stopped", "computes_for_ever")
]
# jobs that run at one time
GROUPS = [
    *(ENDS[at : at + _TOGETHER] for at in range(0, len(ENDS), _TOGETHER)),
    [_GONE],
    _FULL,
    *([case] for case in _SUPERVISOR),
    _SPIED,
]
CASES = [case for group in GROUPS for case in group]


class Table:
    """What `jobs why` said of each kind; the jobs of a group run when the first of them is asked for."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.jobs: dict[str, dict[str, Any]] = {}

    def of(self, case: Case) -> dict[str, Any]:
        if case.name not in self.jobs:
            group = next(group for group in GROUPS if case in group)
            try:
                self._run(group)
            finally:
                self._clean()
        return self.jobs[case.name]

    def _run(self, group: list[Case]) -> None:
        lab, victim = self.lab, self.lab.hosts[1]
        if group == _FULL:
            lab.lab.ssh(victim, f"mkdir -p {_STATE} && mount -t tmpfs -o size=1200m none {_STATE}")
        if group == _SPIED:
            assert _SPY is not None
            copy = ["scp", "-F", lab.lab.ssh_config, _SPY, f"{victim}:/usr/local/bin/py-spy"]
            subprocess.run(copy, check=True, capture_output=True)
        ids = {case.name: self._begin(case) for case in group}
        acts = [(case.act, ids[case.name]) for case in group if case.act is not None]
        for _, job_id in acts:
            lab.wait_up(job_id)
        for act, job_id in acts:
            act(lab, job_id)
        for name, job_id in ids.items():
            if name == "a_host_gone":
                time.sleep(30)
                lab.nodectl("lab", "heal", "--name", lab.lab.status["name"])
            self.jobs[name] = lab.wait_ended(job_id)
            self.jobs[name]["text"] = lab.run("jobs", "why", job_id).stdout
            (lab.folder / name / "why.txt").write_text(self.jobs[name]["text"])

    def _begin(self, case: Case) -> str:
        """Launch at a terminal, and kill nodectl when the job has started; return the job's id."""
        lab, script = self.lab, self.lab.folder / case.name / "train.py"
        script.parent.mkdir()
        script.write_text(case.text())
        where = ["-i", lab.lab.inventory, "-l", ",".join(lab.hosts)]
        how = [
            "-e",
            f"launcher_path={LAUNCHER}",
            "--venv",
            VENV,
            "--nproc-per-node",
            "1",
            "--time-limit",
            str(_LIMIT_S),
        ]
        argv = [sys.executable, "-m", "nodectl", *where, "launch", *how, str(script)]
        launch = subprocess.Popen(
            argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=lab.nodectl.env
        )
        said = []
        for line in launch.stderr or ():
            said.append(line)
            if started := re.search(r"job (\S+) runs on", line):
                launch.send_signal(signal.SIGKILL)
                launch.wait()
                return started[1]
        pytest.fail("".join(said))

    def _clean(self) -> None:
        lab = self.lab
        lab.nodectl("lab", "heal", "--name", lab.lab.status["name"])
        for job_id in re.findall(r"^\d{8}-\S+", lab.run("jobs", "list").stdout, re.MULTILINE):
            lab.run("jobs", "stop", job_id)
        lab.run("jobs", "clean")
        lab.lab.ssh(lab.hosts[1], f"rm -f /usr/local/bin/py-spy; umount -l {_STATE} 2>/dev/null")


@pytest.fixture(scope="module")
def table(prepared: Any, nodectl: Any, tmp_path_factory: pytest.TempPathFactory) -> Table:
    return Table(Lab(prepared, nodectl, tmp_path_factory.mktemp("scripts")))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rank_line_and_cause_are_known_after_the_end(table: Table, case: Case) -> None:
    if case in _SPIED and _SPY is None:
        pytest.skip("py-spy is not installed here")
    job = table.of(case)
    first, text = job["first_failure"], job["text"]
    said = "\n".join([first["message"], *first["evidence"], first["traceback"]])
    assert (first["class"], first["rank"]) == (case.category, case.blamed), text
    assert first["host"] == table.lab.hosts[1] or case.blamed is None, text
    here = [place for place, line in enumerate(case.text().splitlines(), 1) if line.endswith("# here")]
    for place in here:
        assert f"train.py:{place} " in said or f'train.py", line {place}' in said, text
    assert [words for words in case.words if words not in first["message"]] == [], text
    assert [words for words in case.evidence if words not in said] == [], text
    assert ("stacks of rank 1 by py-spy" in text) == (case in _SPIED), text

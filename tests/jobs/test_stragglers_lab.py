"""A slow rank of a real DDP job over gloo is named, and its host is exchanged where that is asked for; no other is.

`SLOW` adds 30 % to the work of rank 1 on the host that it names: as a host that is throttled would.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.deaths import LAUNCHER, VENV, Lab, _made_group, _outer_pid

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TRAIN = """
import os, socket, sys, time
from pathlib import Path
import torch, torch.distributed as dist
steps, slow_host, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(os.environ["NODECTL_CHECKPOINT_DIR"])
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
sizes = torch.Generator().manual_seed(rank)
found = sorted(folder.glob("step-*.pt"))
done = int(found[-1].stem[5:]) if found else 0
print(f"up at {done}", flush=True)
work_s = 0.3
for done in range(done + 1, steps + 1):
    share = float(torch.randint(50, 151, (1,), generator=sizes)) / 100 if kind == "uneven" else 1.0
    share += 0.3 * (socket.gethostname() == slow_host)
    loss = model(torch.randn(8, 64)).square().mean()
    if kind == "computes":
        used_s = time.thread_time()
        while time.thread_time() - used_s < 0.1:
            torch.ones(64, 64) @ torch.ones(64, 64)
    else:
        time.sleep(share * work_s)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0 and (done % 20 == 0 or kind == "writes"):
        torch.save(model.state_dict(), folder / "step.tmp")
        time.sleep(0.4 * work_s)
        os.replace(folder / "step.tmp", folder / f"step-{done:05}.pt")
    if rank == 0:
        print(f"step {done}/{steps} loss {float(loss):.4f}", flush=True)
dist.destroy_process_group()
"""


class Jobs:
    """An operator's shell with some of the lab's hosts."""

    def __init__(self, lab: Any, nodectl: Any, folder: Path) -> None:
        self.lab, self.nodectl, self.script = lab, nodectl, folder / "train.py"
        self.script.write_text(TRAIN)

    def launch(self, options: tuple[str, ...], *args: str) -> str:
        own = ["--launcher", LAUNCHER, "--venv", VENV, "--nproc-per-node", "1", "--checkpoint", "auto", "--detach"]
        place = ["-i", self.lab.inventory, "-l", ",".join(self.lab.hosts[:3])]
        return str(self.nodectl(*place, "launch", *own, *options, str(self.script), "--", *args).stdout.strip())

    def ask(self, *words: str) -> dict[str, Any]:
        done = self.nodectl("-i", self.lab.inventory, "--output", "json", "jobs", *words, check=False, timeout=300)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def stragglers(self, job_id: str, seconds: float) -> list[str]:
        """What is said of stragglers, by looks over that time; it ends with the first."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            hosts = self.ask("watch", "--once", "--interval", "5", job_id)["hosts"]
            told = [f"{host['host']}{host['straggler']}" for host in hosts if host["straggler"]]
            if told:
                return told
        return []


@pytest.fixture
def jobs(prepared: Any, nodectl: Any, tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(prepared, nodectl, tmp_path)
    yield made
    nodectl("-i", prepared.inventory, "jobs", "stop", "last", check=False)
    nodectl("-i", prepared.inventory, "jobs", "clean", check=False)
    for host in prepared.hosts:
        prepared.ssh(host, "rm -rf ~/.local/state/nodectl/checkpoints")


def test_the_rank_for_which_the_others_wait_is_named(jobs: Jobs) -> None:
    slow = jobs.lab.hosts[1]
    job_id = jobs.launch((), "3000", slow, "plain")
    (told,) = jobs.stragglers(job_id, 180)
    assert told.startswith(f"{slow}: rank 1 is "), told
    percent = float(told.partition("rank 1 is ")[2].split()[0])
    assert 20 <= percent <= 45, told


@pytest.mark.parametrize("kind", ["plain", "uneven", "writes"])
def test_nobody_is_named_where_nobody_is_slow(jobs: Jobs, kind: str) -> None:
    job_id = jobs.launch((), "3000", "nobody", kind)
    assert jobs.stragglers(job_id, 180) == []
    assert jobs.ask("show", job_id)["jobs"][0]["state"] == "running"


def test_a_host_whose_cpu_is_throttled_is_named(jobs: Jobs, tmp_path: Path) -> None:
    group, slow = _made_group("cpu"), jobs.lab.hosts[1]
    job_id = jobs.launch((), "3000", "nobody", "computes")
    try:
        lab = Lab(jobs.lab, jobs.nodectl, tmp_path)
        lab.wait(lambda: "up at" in lab.run("jobs", "logs", job_id).stdout, "the ranks did not start")
        (group / "cpu.cfs_quota_us").write_text("6000")
        (group / "cgroup.procs").write_text(str(_outer_pid(lab, job_id)))
        (told,) = jobs.stragglers(job_id, 400)
        assert told.startswith(f"{slow}: rank 1 is "), told
    finally:
        jobs.nodectl("-i", jobs.lab.inventory, "jobs", "stop", job_id, check=False)
        group.rmdir()


def test_a_stragglers_host_is_exchanged_for_a_spare_after_a_checkpoint(jobs: Jobs) -> None:
    first, slow, spare = jobs.lab.hosts[:3]
    job_id = jobs.launch(("--spares", "1", "--replace-stragglers"), "220", slow, "plain")
    until = time.monotonic() + 300
    while (job := jobs.ask("show", job_id)["jobs"][0])["state"] not in ("finished", "failed"):
        assert time.monotonic() < until, job
        time.sleep(2)
    assert (job["state"], job["attempt"], job["nodes"]) == ("finished", 2, [first, spare]), job
    cause = job["past_attempts"][0]["cause"]
    assert (cause["class"], cause["host"]) == ("straggler", slow), cause
    told = jobs.lab.ssh(first, "cat $(find ~/.local/state/nodectl/jobs -name stdout.log)")
    assert max(int(line.split()[2]) for line in told.splitlines() if line.startswith("up at")) >= 60, told[:2000]

"""Jobs that come back by themselves: real torchrun over gloo on lab hosts, ended by the loss of an undisturbed run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.deaths import LAUNCHER, VENV, Lab
from tests.torch_venv import torch_venv

# eleven imports of torch a test: the quick variants are in tests/payload/test_job_attempts.py
pytestmark = [pytest.mark.lab, pytest.mark.slow]

# momentum and random numbers are part of the state: a resumed run that forgets one ends with another loss
TRAIN = """
import os, signal, sys, time
from pathlib import Path
import torch, torch.distributed as dist

steps, dies_at, pause_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), Path(os.environ["NODECTL_CHECKPOINT_DIR"])
torch.manual_seed(7)
weights = torch.randn(16, 1)
speed = torch.zeros_like(weights)
noise = torch.Generator().manual_seed(100)
done = torch.zeros(1, dtype=torch.int64)
found = sorted(folder.glob("step-*.pt"))
if rank == 0 and found:
    kept = torch.load(found[-1])
    weights, speed, done = kept["weights"], kept["speed"], kept["done"]
    noise.set_state(kept["noise"])
state = noise.get_state()
for part in (weights, speed, done, state):
    dist.broadcast(part, src=0)
noise.set_state(state)
os.write(1, f"up at {int(done)}\\n".encode())
while done < steps:
    if dies_at == int(done) and rank == 1 and os.environ.get("NODECTL_ATTEMPT") == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    batch = torch.randn(8 * dist.get_world_size(), 16, generator=noise)[rank::dist.get_world_size()]
    error = batch @ weights - batch.sum(dim=1, keepdim=True)
    gradient = batch.T @ error / 8
    dist.all_reduce(gradient)
    speed = 0.9 * speed + gradient
    weights = weights - 0.01 * speed
    done += 1
    loss = (error ** 2).mean()
    dist.all_reduce(loss)
    if rank == 0:
        whole = {"weights": weights, "speed": speed, "done": done, "noise": noise.get_state()}
        torch.save(whole, folder / "step.tmp")
        os.replace(folder / "step.tmp", folder / f"step-{int(done):04}.pt")
        os.write(1, f"step {int(done)} loss {float(loss).hex()}\\n".encode())
    time.sleep(pause_s)
dist.destroy_process_group()
"""


class Hosts(Lab):
    """An operator who trains on the first hosts, a rank each."""

    def argv(self, count: int, options: list[str], args: list[str]) -> list[str]:
        """nodectl's words for a launch on the first `count` hosts."""
        hosts = ",".join(self.hosts[:count])
        own = ["-e", f"launcher_path={LAUNCHER}", "--venv", VENV, "--nproc-per-node", "1"]
        own += ["--checkpoint", "/shared/run", "--lease", "4"]
        return ["-i", self.lab.inventory, "-l", hosts, "launch", *own, *options, str(self.script), "--", *args]

    @property
    def script(self) -> Path:
        return self.folder / "train.py"

    def output(self, host: str) -> str:
        """Of all attempts, the newest file last."""
        find = "find ~/.local/state/nodectl/jobs -name output.log -o -name 'std*.log'"
        return str(self.lab.ssh(host, f"cat $({find} | xargs ls -tr)"))


def last_loss(text: str) -> str:
    return str(re.findall(r"step \d+ loss (\S+)", text)[-1])


def undisturbed(script: Path, folder: Path, steps: int) -> str:
    """The last loss of two ranks on this machine that nobody disturbs."""
    folder.mkdir()
    argv = [f"{torch_venv()}/bin/python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    env = {**os.environ, "NODECTL_CHECKPOINT_DIR": str(folder), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    words = [*argv, str(script), str(steps), "-1", "0"]
    return last_loss(subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=True).stdout)


@pytest.fixture
def hosts(prepared: Any, nodectl: Any, tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(prepared, nodectl, tmp_path)
    made.script.write_text(TRAIN)
    yield made
    nodectl("-i", prepared.inventory, "jobs", "stop", "last", check=False)
    nodectl("-i", prepared.inventory, "jobs", "clean", check=False)
    prepared.ssh(prepared.hosts[0], "rm -r /shared/run")


def test_the_job_comes_back_without_the_operators_machine(hosts: Hosts, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "nodectl", *hosts.argv(2, ["--restarts", "1"], ["40", "-1", "0.3"])]
    with subprocess.Popen(argv, env=hosts.nodectl.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while b"step 3 loss" not in process.stdout.readline():
            continue
        process.kill()
    hosts.signal(hosts.job("last")["id"], 1, "KILL")
    job = hosts.wait_ended("last")
    assert job["state"] == "finished", job
    assert job["attempt"] == 2
    assert last_loss(hosts.output(hosts.hosts[0])) == undisturbed(hosts.script, tmp_path / "alone", 40)


def test_a_host_that_fails_preflight_is_left_out_and_a_spare_starts_in_its_place(hosts: Hosts) -> None:
    hosts.script.write_text("import os\nos.write(1, b'was here\\n')\nraise SystemExit(3)\n")
    broken = hosts.hosts[0]
    hosts.lab.ssh(broken, f"chmod -x {LAUNCHER}")
    try:
        refused = hosts.nodectl(*hosts.argv(3, [], []), check=False)
        assert (refused.returncode, "not launched" in refused.stderr) == (1, True), refused.stderr
        done = hosts.nodectl(*hosts.argv(3, ["--spares", "1"], []), check=False)
    finally:
        hosts.lab.ssh(broken, f"chmod +x {LAUNCHER}")
    assert f"left out, a spare takes the place: {broken}" in done.stderr
    assert hosts.job("last")["nodes"] == list(hosts.hosts[1:3])
    assert done.stdout.count("was here\n") == 2

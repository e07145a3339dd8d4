"""Real traces: torchrun over gloo on lab hosts, a rank that is slow, a network that is slow; the script unchanged."""

from __future__ import annotations

import json
import re
import shlex
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.roles.rendering import render
from tests.torch_venv import torch_venv

pytestmark = [pytest.mark.lab]

_LAUNCHER = "/usr/local/bin/trace-launcher"
_VENV = "/opt/trace/venv"
_MAKE_VENV = f"""
mkdir -p {_VENV}/bin && cp /srv/nodectl/venv/pyvenv.cfg {_VENV} && ln -sfn /srv/nodectl/venv/lib {_VENV}/lib
ln -sf $(readlink -f /srv/nodectl/venv/bin/python) {_VENV}/bin/python
printf '#!{_VENV}/bin/python\\nfrom torch.distributed.run import main\\nmain()\\n' > {_VENV}/bin/torchrun
chmod 755 {_VENV}/bin/torchrun
"""
# `slow` is the rank that is slow, `how` in what
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

slow, how, steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
assert "NODECTL_TRACE" not in os.environ


class Numbers(Dataset):
    def __len__(self):
        return 8 * steps

    def __getitem__(self, number):
        if how == "loading" and dist.get_rank() == slow:
            time.sleep(0.08)
        return torch.randn(128, generator=torch.Generator().manual_seed(number))


torch.set_num_threads(1)
torch.manual_seed(7)
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
weight = torch.randn(700, 700)
for number, batch in enumerate(DataLoader(Numbers(), batch_size=8)):
    optimizer.zero_grad()
    if how == "maths" and dist.get_rank() == slow:
        for _ in range(12):
            weight @ weight
    if how == "dies" and dist.get_rank() == slow and number == steps - 1:
        raise RuntimeError("no more")
    loss = ((model(batch) - batch) ** 2).mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        os.write(1, f"step {number} loss {loss.item().hex()}\\n".encode())
dist.destroy_process_group()
if steps > 6:  # its window is over; a thread of torch that wakes up as Python winds down aborts a run now and then
    os._exit(0)
"""


class Shell:
    """An operator's shell with this lab as inventory."""

    def __init__(self, lab: Any, nodectl: Any, hosts: int) -> None:
        self.lab, self.nodectl = lab, nodectl
        self.hosts = lab.hosts[:hosts]

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        limit = ("-l", ",".join(self.hosts))
        done: subprocess.CompletedProcess[str] = self.nodectl("-i", self.lab.inventory, *limit, *args, check=False)
        return done

    def launch(self, *args: str, document: bool = False) -> subprocess.CompletedProcess[str]:
        form = ("--output", "json") if document else ()
        return self.run(*form, "launch", "--launcher", _LAUNCHER, "--venv", _VENV, "--nproc-per-node", "1", *args)

    def everywhere(self, command: str) -> None:
        for host in self.lab.hosts:
            self.lab.ssh(host, command)


@pytest.fixture
def shell(lab4: Any, nodectl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    if Path(torch_venv()).parent.name != "lab-share":
        pytest.skip("the lab's share holds no environment with torch")
    made = Shell(lab4, nodectl, 3)
    text = shlex.quote(render("launch.sh.j2", profiles="lab", venv=_VENV))
    made.everywhere(f"printf %s {text} > {_LAUNCHER} && chmod 755 {_LAUNCHER}; {_MAKE_VENV}")
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    yield made
    made.run("jobs", "stop", "last")
    made.run("jobs", "clean")
    made.everywhere(f"rm -rf {_LAUNCHER} /opt/trace")


def losses(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"loss (\S+)", done.stdout + done.stderr)


@pytest.mark.slow
def test_the_slow_rank_is_named_and_the_losses_stay_bit_for_bit(shell: Shell) -> None:
    words = ("train.py", "--", "1", "loading", "8")
    traced = shell.launch("--trace", "torch", "--trace-skip", "3", "--trace-steps", "3", *words, document=True)
    said = traced.stderr + traced.stdout
    assert traced.returncode == 0, said
    document = json.loads(traced.stdout)
    told = document["trace"]
    assert [(rank["rank"], rank["host"], rank["steps"], rank["device"]) for rank in told["ranks"]] == [
        (number, host, 3, "cpu") for number, host in enumerate(shell.hosts)
    ], said
    slow = told["slowest"]
    assert slow is not None, said
    assert (slow["rank"], slow["host"], slow["part"]) == (1, shell.hosts[1], "loading"), said
    # the others' own work takes longer on a busy machine, and so all shares are less
    assert slow["part_ms"] > 8 * 80 and slow["by_share"] > 0.2, said
    one, two, three = told["ranks"]
    assert two["loading"] > 0.3 > one["loading"] and two["waiting"] < min(one["waiting"], three["waiting"]), said
    assert one["exposed"] >= one["waiting"] > 0.2, said
    files = sorted(Path(told["files"]["folder"]).iterdir())
    assert [path.name for path in files] == [f"{host}.{number}.json.gz" for number, host in enumerate(shell.hosts)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    again = shell.run("--output", "json", "jobs", "trace", document["jobs"][0]["id"])
    assert again.returncode == 0, again.stderr + again.stdout
    assert json.loads(again.stdout)["trace"]["ranks"] == told["ranks"], again.stderr
    plain = shell.launch(*words)
    assert plain.returncode == 0 and len(losses(plain)) == 8, plain.stderr + plain.stdout
    assert losses(plain) == losses(traced), said

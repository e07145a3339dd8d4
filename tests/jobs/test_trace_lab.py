"""A real trace: torchrun over gloo on lab hosts, a compiled model, a rank that is slow; the script unchanged."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.jobs.deaths import LAUNCHER, VENV, Lab

pytestmark = [pytest.mark.lab]

TRAIN = """
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

slow, steps = int(sys.argv[1]), int(sys.argv[2])
assert "NODECTL_TRACE" not in os.environ


class Numbers(Dataset):
    def __len__(self):
        return 8 * steps

    def __getitem__(self, number):
        return torch.randn(128, generator=torch.Generator().manual_seed(number))


torch.set_num_threads(1)
torch.manual_seed(7)
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.ReLU(), torch.nn.Linear(512, 128))
model = torch.compile(DistributedDataParallel(model), backend="eager")  # what is compiled stays so
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
weight = torch.randn(700, 700)
for number, batch in enumerate(DataLoader(Numbers(), batch_size=8)):
    optimizer.zero_grad()
    if dist.get_rank() == slow:
        for _ in range(12):
            weight @ weight
    loss = ((model(batch) - batch) ** 2).mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        os.write(1, f"step {number} loss {loss.item().hex()}\\n".encode())
dist.destroy_process_group()
os._exit(0)  # a thread of torch that wakes up as Python winds down aborts a run now and then
"""


def launch(lab: Lab, *args: str, document: bool = False) -> subprocess.CompletedProcess[str]:
    form = ("--output", "json") if document else ()
    return lab.run(*form, "launch", "-e", f"launcher_path={LAUNCHER}", "--venv", VENV, "--nproc-per-node", "1", *args)


def losses(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"loss (\S+)", done.stdout + done.stderr)


@pytest.mark.slow
def test_the_slow_rank_computes_and_the_losses_stay_bit_for_bit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    (lab.folder / "train.py").write_text(TRAIN)
    monkeypatch.chdir(lab.folder)
    words = ("train.py", "--", "1", "20")
    traced = launch(lab, "--trace", "torch", *words, document=True)
    said = traced.stderr + traced.stdout
    assert traced.returncode == 0, said
    [job] = json.loads(traced.stdout)["jobs"]
    one, two, three = ranks = job["traces"]
    assert [(rank["rank"], rank["host"], rank["steps"], rank["problem"]) for rank in ranks] == [
        (number, host, 5, "") for number, host in enumerate(lab.hosts)
    ], said
    for rank in ranks:
        both = rank["compute_percent"] + rank["communication_percent"] - rank["overlap_percent"]
        assert both + rank["idle_percent"] == pytest.approx(100, abs=0.3), said
    assert two["compute_percent"] > max(one["compute_percent"], three["compute_percent"]), said
    assert two["communication_percent"] < min(one["communication_percent"], three["communication_percent"]), said
    shown = lab.run("jobs", "show", job["id"]).stdout
    assert re.search(rf"1 +{lab.hosts[1]} +5 .* %", shown), shown
    found = lab.lab.ssh(lab.hosts[1], f"ls .local/state/nodectl/jobs/{job['id']}/traces").split()
    assert found == ["1.pt.trace.json.gz", "1.summary.json"]
    plain = launch(lab, *words)
    assert plain.returncode == 0 and len(losses(plain)) == 20, plain.stderr + plain.stdout
    assert losses(plain) == losses(traced), said

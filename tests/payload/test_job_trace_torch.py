"""The profiler in a rank of a real torch: what is compiled still runs, and gives the same bits."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from nodectl.payload.jobs import notes
from tests.torch_venv import torch_venv

pytestmark = [pytest.mark.slow]

TRAIN = """
import sys, torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
if sys.argv[1] == "model":
    model = torch.compile(model, backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if sys.argv[1] == "optimizer":
    optimizer.step = torch.compile(optimizer.step, backend="eager")
batch = torch.randn(8, 64)
for _ in range(18):
    optimizer.zero_grad()
    loss = ((model(batch) - batch) ** 2).mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
"""


def losses(folder: Path, compiled: str, *, traced: bool) -> str:
    (folder / "train.py").write_text(TRAIN)
    rank = {"PYTHONPATH": notes.hook_folder(), "RANK": "0", "LOCAL_RANK": "0", "NODECTL_JOB_DIR": str(folder)}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **({**rank, "NODECTL_TRACE": "torch"} if traced else {})}
    argv = [f"{torch_venv()}/bin/python", str(folder / "train.py"), compiled]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("compiled", ["model", "optimizer"])
def test_what_is_compiled_stays_so(tmp_path: Path, compiled: str) -> None:
    assert losses(tmp_path, compiled, traced=True) == losses(tmp_path, compiled, traced=False)
    note = json.loads((tmp_path / "traces" / "0.summary.json").read_text())
    if compiled == "optimizer":
        assert "a compiled step cannot be counted" in note["problem"]
        return
    assert (note["problem"], note["steps"], note["communication_percent"]) == ("", 5, 0.0)
    assert note["compute_percent"] > 0 and note["compute_percent"] + note["idle_percent"] == pytest.approx(100, abs=0.2)
    assert (tmp_path / "traces" / "0.pt.trace.json.gz").exists()

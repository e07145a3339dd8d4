"""Every example of every `--help`, typed as it stands into one shell, in a folder that has the files which they name.

An example that a lab cannot carry out is typed, too, and may then say what is missing; it is never a usage error.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nodectl.cli.guide import EXAMPLES, examples_of
from nodectl.cli.root import root_context
from nodectl.lab.down import down
from nodectl.lab.state import LabFolder
from tests.articles.test_compare import log, summary
from tests.cli.test_guide import app, walk
from tests.pages.page import ROOT
from tests.pages.run import environment
from tests.pages.session import Session

FIXTURES = ROOT / "tests" / "fixtures"
UP, DOWN = "nodectl lab up -n 4 --rate 1gbit", "nodectl lab down"
# four hosts, as the examples name them, with PyTorch
READY = f"export ANSIBLE_INVENTORY=$({UP}) && nodectl provision --yes --tags python,pytorch,launcher"
TRAIN = """\
import argparse, time
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--step-s", type=float, default=0.05)
options = parser.parse_args()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(options.epochs * options.steps):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(options.step_s)
    print(f"step {step + 1}/{options.epochs * options.steps} loss {loss.item():.3f}", flush=True)
dist.destroy_process_group()
"""
RUNNING = "nodectl launch --detach train.py -- --steps 40 --step-s 0.5"
# a trial of which one candidate has won, whatever this machine's links showed
WON = """python -c "
from nodectl.trials import store
from tests.trials.saved_trial import trial
store.save(trial('29990101T000000Z-aaaa', hosts={'node01': {}, 'node02': {}}))"
"""
# a line of the examples → what has to be so before it is typed
BEFORE = {
    "nodectl history show 12 --all": "for n in $(seq 12); do nodectl probe memory -l node01 --duration 0.2; done",
    "nodectl init fleet --kind rtx4090-3": "rm -rf fleet",
    "nodectl init fleet --from 'node[01-03]'": "rm -rf fleet",
    "nodectl -i old.ini init fleet --from all": "rm -rf fleet",
    "nodectl jobs attach last": RUNNING,
    "nodectl jobs logs --tail 20 --rank 5 last": "nodectl launch --nproc-per-node 2 train.py",
    "nodectl jobs logs -f last": RUNNING,
    "nodectl jobs stop last": RUNNING,
    "nodectl jobs watch last": RUNNING,
    "nodectl ledger return node03": "nodectl accept --level quick --include-cordoned -l node03",
    "nodectl lab up -n 3 --as rtx4090-3": DOWN,
    UP: DOWN,
    "nodectl tune propose last --write won.yml": WON,
    "nodectl tune rollback --check": "nodectl tune apply won.yml --yes",
    "nodectl probe tcp --compare LAST": "nodectl probe tcp --duration 1",
}
# a line of the examples → how a person types what it waits for, or ends it; -K always asks
TYPED = {
    "nodectl doctor -K": "echo anything | {}",
    "nodectl provision -K": "echo anything | {} --check",
    "nodectl health --watch 1m": "timeout --preserve-status -s INT 75 {}",
    "nodectl parse nccl-tests -": "{} < nccl-tests.txt",
}
# the beginning of a line → what else than 0 it may end with, and why
STATUS: dict[str, tuple[frozenset[int], str]] = {
    "nodectl health --watch": (frozenset({130}), "a person ends it"),
    **{
        f"nodectl {judge}": (frozenset({1, 3}), "it judges the hosts, and a lab's have no clock service and no GPU")
        for judge in ("health", "doctor", "accept", "-i hosts.yml -l 'node[01-04]' health")
    },
    "nodectl probe": (frozenset({1, 3}), "it judges what it measures: no GPU, no RDMA, and links of a busy machine"),
}
# what the others need comes first, and what takes it away last
FIRST = (
    "nodectl launch",
    "nodectl jobs",
    "nodectl probe",
    "nodectl tune trial",
    "nodectl tune propose",
    "nodectl tune",
)
LAST = ("nodectl ledger cordon", "nodectl ledger list", "nodectl ledger show", "nodectl ledger return",
        "nodectl rollback", "nodectl lab fault", "nodectl lab heal", "nodectl jobs clean", DOWN,
        "nodectl lab up -n 3", UP)  # fmt: skip


def lines() -> list[str]:
    """Every example once, in the order in which they can be typed."""
    paths = dict.fromkeys([*(path for path, _ in walk(root_context(app()))), *EXAMPLES])
    every = dict.fromkeys(line for path in paths for line, _ in examples_of(path))
    return sorted(every, key=_place)


def _place(line: str) -> tuple[int, int]:
    last = [place for place, beginning in enumerate(LAST) if line.startswith(beginning)]
    first = [place for place, beginning in enumerate(FIRST) if line.startswith(beginning)]
    return (2, last[0]) if last else (0, first[0]) if first else (1, 0)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, cli_env: dict[str, str], lab_machine: None) -> Iterator[Session]:
    """One shell for all of them: a lab of four hosts, and the files that the examples name."""
    folder = tmp_path_factory.mktemp("examples")
    home = folder / "home"
    work = home / "work"
    work.mkdir(parents=True)
    env = environment(home, {**os.environ, "XDG_CACHE_HOME": cli_env["XDG_CACHE_HOME"]})
    try:
        with Session(work, env, folder / "output") as session:
            ready = session.run(READY, 900)
            assert ready.status == 0, ready.output
            lab = LabFolder(next(home.glob(".local/state/nodectl/lab/*")).resolve())
            _write_files(work, home, lab)
            yield session
    finally:
        for path in home.glob(".local/state/nodectl/lab/*"):
            down(LabFolder(path.resolve()))


def _write_files(work: Path, home: Path, lab: LabFolder) -> None:
    shutil.copy(lab.inventory, work / "hosts.yml")
    (home / ".ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(lab.path / "ssh_config", home / ".ssh" / "config")
    (work / "old.ini").write_text(_as_ini(yaml.safe_load(lab.inventory.read_text())))
    (work / "train.py").write_text(TRAIN)
    (work / "pkg").mkdir()
    (work / "pkg" / "__init__.py").write_text("")
    (work / "pkg" / "train.py").write_text(TRAIN)
    shutil.copy(FIXTURES / "nvidia" / "q-590-mig.txt", work / "saved.txt")
    shutil.copy(FIXTURES / "tools" / "nccl-tests" / "new.txt", work / "nccl-tests.txt")
    (work / "plain.log").write_text(log(summary(2.4), summary(2.5)))
    (work / "tuned.log").write_text(log(summary(1.6), summary(1.7)))


def _as_ini(inventory: dict[str, dict[str, dict[str, dict[str, dict[str, dict[str, object]]]]]]) -> str:
    group = inventory["all"]["children"]["lab"]
    common = group.get("vars", {}) | inventory["all"].get("vars", {})
    hosts = [
        " ".join([name, *(f"{key}={json.dumps(value)}" for key, value in {**common, **values}.items())])
        for name, values in group["hosts"].items()
    ]
    return "\n".join(["[gpus]", *hosts, ""])


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("line", lines())
def test_an_example_does_what_it_says(shell: Session, line: str) -> None:
    if (before := BEFORE.get(line)) is not None:
        prepared = shell.run(before, 600)
        assert prepared.status == 0, prepared.output
    done = shell.run(TYPED.get(line, "{}").replace("{}", line), 1200)
    allowed = [statuses for beginning, (statuses, _) in STATUS.items() if line.startswith(beginning)]
    assert done.status in {0}.union(*allowed), done.output
    assert "Traceback" not in done.output and "internal error" not in done.output, done.output


def test_the_tables_name_what_is_an_example() -> None:
    every = lines()
    assert {*BEFORE, *TYPED} <= {*every}
    assert all(any(line.startswith(beginning) for line in every) for beginning in (*STATUS, *FIRST, *LAST))

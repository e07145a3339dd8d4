"""What every workload's training does by its options: checked in one process of a Python that has torch."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from tests.torch_venv import torch_venv

FOLDER = Path(next(iter(workloads.__path__)))
SCRIPT = """
import json, os, pathlib, sys, time
import torch
from feed import Feed, Wanted
from options import parse
from ranks import Ranks
from program import Training
from transformer import Transformer
import usage
from usage import Clock

TINY = ["--d-model=16", "--layers=1", "--heads=2", "--seq=4", "--dropout=0", "--samples=24", "--clip=0", "--device=cpu"]

def begun(workload, *options):
    # a text has the samples that it has
    tiny = [each for each in TINY if not each.startswith("--samples") or "--text=" not in "".join(options)]
    settings = parse(workload, [*tiny, *options])
    training = Training(workload, settings, Ranks(0, 1, 0, torch.device("cpu"), "none", ("here",)))
    return training, Feed(training.data, settings, training.group.device)

def trained(*options):
    training, feed = begun(Transformer(), *options)
    told = {"sizes": [], "lr": [], "passes": 0}
    def count(*_):
        told["passes"] += 1
    training.strategy.model.register_forward_hook(count)
    for samples, parts in feed.steps(training.plan()):
        told["sizes"].append([len(part[0]) for part in parts])
        assert samples == sum(told["sizes"][-1])
        training.train_step(parts)
        told["lr"].append(training.strategy.optimizer.param_groups[0]["lr"])
    told["weights"] = torch.cat([each.detach().flatten() for each in training.strategy.bare.parameters()])
    told["epoch"] = training.epoch + 1
    return told

def difference(one, other):
    return float((one["weights"] - other["weights"]).abs().max())

told = {}
# sgd: Adam would hide a gradient that is too large by a factor
sgd = ["--optimizer=sgd", "--lr=0.1", "--epochs=2"]
whole = trained(*sgd, "--batch=10")
parts = trained(*sgd, "--batch=5", "--accumulation=2")
told["whole"] = {name: whole[name] for name in ("sizes", "passes", "epoch")}
told["parts"] = {name: parts[name] for name in ("sizes", "passes", "epoch")}
told["accumulated"] = difference(whole, parts)
told["loaded"] = difference(whole, trained(*sgd, "--batch=10", "--workers=2", "--prefetch=1"))
for name in ("seed=1", "weight-decay=0.1", "momentum=0.9", "clip=0.01"):
    told[name] = difference(whole, trained(*sgd, "--batch=10", "--" + name))
told["cosine"] = trained("--lr=1", "--steps=8", "--warmup-steps=2", "--schedule=cosine", "--batch=24")["lr"]
told["constant"] = trained("--lr=1", "--steps=3", "--batch=24")["lr"]

class Told:
    # each batch says which process made it; the file counts how many were made
    words = ""
    made = pathlib.Path(sys.argv[1]) / "made"
    def batch(self, indices, epoch):
        with self.made.open("a") as file:
            file.write("x")
        return torch.tensor([os.getpid()]), torch.tensor([epoch])
def loaded(workers, prefetch):
    Told.made.write_text("")
    settings = parse(Transformer(), [*TINY, f"--workers={workers}", *[f"--prefetch={prefetch}"] * (workers > 0)])
    plan = [[Wanted(step // 10, [step])] for step in range(20)]
    arriving = Feed(Told(), settings, torch.device("cpu")).steps(plan)
    pids, ahead = set(), None
    for count, (_, [batch]) in enumerate(arriving):
        if not count:
            until = time.monotonic() + 30
            while len(Told.made.read_text()) < 1 + workers * prefetch and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(0.1)
            ahead = len(Told.made.read_text()) - 1
        pids.add(int(batch[0]))
    return {"processes": len(pids - {os.getpid()}), "itself": os.getpid() in pids, "ahead": ahead}
told["loaders"] = [loaded(0, 2), loaded(1, 1), loaded(2, 3)]

article = {name: parse(Transformer(), ["--preset", name]) for name in ("article-0", "article-1")}
told["articles"] = {
    name: [each.optimizer, each.lr, each.batch, each.schedule, each.clip, each.workers, each.pin_memory, each.own.learn]
    for name, each in article.items()
}
zero = article["article-0"]
told["article-0"] = [zero.own.layers, zero.own.d_model, zero.own.heads, zero.own.seq, zero.epochs, zero.samples]
told["params"] = sum(each.numel() for each in Transformer().model(zero).parameters())
told["given"] = parse(Transformer(), ["--preset=article-1", "--batch=2"]).batch

folder = pathlib.Path(sys.argv[1]) / "texts"
folder.mkdir()
(folder / "a.txt").write_text("the quick brown fox " * 40)
def read(*options):
    training, feed = begun(Transformer(), "--preset=article-1", "--workers=0", "--clip=0", "--batch=8", *options)
    losses = [float(training.train_step(parts)) for _, parts in feed.steps(training.plan())]
    return training, losses
training, losses = read("--text=" + str(folder), "--lr=0.01", "--steps=30")
told["text"] = [training.data.words, losses[0], losses[-1]]
model = training.strategy.bare.eval()
tokens = torch.randint(256, (1, 4))
other = tokens.clone()
other[0, 3] = 255 - other[0, 3]
with torch.no_grad():
    one, two = model(tokens), model(other)
told["sees"] = [float((one - two)[0, :3].abs().max()), float((one - two)[0, 3].abs().max())]
told["made_up"] = read("--steps=1")[0].data.words
flops = [Transformer().flops_per_sample(parse(Transformer(), [*TINY, *each]), None) for each in ([], ["--learn=text"])]
told["text_flops"] = flops[1] - flops[0]

clock = Clock(torch.device("cpu"), 30)
clock.durations_s = [9.0] * 10 + [0.1 * step for step in range(1, 21)]
clock.waits_s, clock.samples = [0.05] * 30, [4] * 30
told["clock"] = clock.figures()
told["sent"] = usage.sent_bytes(pathlib.Path(sys.argv[1]) / "net", pathlib.Path(sys.argv[1]) / "infiniband")
use = usage.GpuUse("GPU-1")
while not pathlib.Path(sys.argv[1], "asked").exists():
    time.sleep(0.05)
time.sleep(0.5)
told["use"], told["asked"] = use.stop(), pathlib.Path(sys.argv[1], "asked").read_text()
os.environ["PATH"] = "/nonexistent"
told["no nvidia-smi"] = usage.GpuUse("0").stop()
print(json.dumps(told))
"""


def counters(folder: Path) -> None:
    """A host's interfaces: a loop, a port, a VLAN on it, and an RDMA port of four-byte words."""
    for name, count in {"lo": 1000, "eth0": 70, "eth0.5": 60}.items():
        (folder / "net" / name / "statistics").mkdir(parents=True)
        (folder / "net" / name / "statistics/tx_bytes").write_text(f"{count}\n")
    (folder / "net/eth0.5/lower_eth0").mkdir()
    (folder / "infiniband/mlx5_0/ports/1/counters").mkdir(parents=True)
    (folder / "infiniband/mlx5_0/ports/1/counters/port_xmit_data").write_text("100\n")


# as it prints in a loop, with a reading that the GPU does not give
SMI = """#!/bin/sh
printf '50\\n[N/A]\\n70\\n'
echo "$*" > {asked}.new && mv {asked}.new {asked}
exec sleep 600
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sys")
    counters(folder)
    (folder / "nvidia-smi").write_text(SMI.format(asked=folder / "asked"))
    (folder / "nvidia-smi").chmod(0o755)
    done = subprocess.run(
        [f"{torch_venv()}/bin/python", "-c", SCRIPT, str(folder)],
        cwd=FOLDER,
        env={"PATH": f"{folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_micro_batches_come_to_what_one_batch_comes_to(told: dict[str, Any]) -> None:
    assert told["whole"] == {"sizes": [[10], [10], [4]] * 2, "passes": 6, "epoch": 2}
    assert told["parts"] == {"sizes": [[5, 5], [5, 5], [4]] * 2, "passes": 10, "epoch": 2}
    assert told["accumulated"] < 1e-6


def test_who_prepares_the_samples_changes_nothing(told: dict[str, Any]) -> None:
    assert told["loaded"] == 0.0 and told["seed=1"] > 1e-2


def test_as_many_processes_load_as_are_asked_for_and_stay_over_epochs(told: dict[str, Any]) -> None:
    # each has its own number of batches ready beyond the one that was taken
    assert told["loaders"] == [
        {"processes": 0, "itself": True, "ahead": 0},
        {"processes": 1, "itself": False, "ahead": 1},
        {"processes": 2, "itself": False, "ahead": 6},
    ]


def test_the_articles_are_presets(told: dict[str, Any]) -> None:
    assert told["articles"] == {
        "article-0": ["adam", 1e-3, 32, "constant", 0.0, 0, False, "numbers"],
        "article-1": ["adamw", 1e-4, 128, "cosine", 1.0, 8, True, "text"],
    }
    assert told["article-0"] == [6, 512, 8, 128, 10, 1024] and told["given"] == 2
    # six of torch's layers as they come, and one number out of 512
    assert told["params"] == 18_914_817


def test_text_is_read_from_a_folder_and_each_byte_sees_those_before_it(told: dict[str, Any]) -> None:
    words, first, last = told["text"]
    assert "1 file" in words and "texts" in words and "synthetic" in told["made_up"]
    # a model that knows nothing has a loss of ln 257
    assert first > 5 and last < 3
    before, itself = told["sees"]
    assert before == 0 and itself > 1e-3
    assert told["text_flops"] == 4 * 6 * 16 * 257


def test_what_changes_the_weights_does(told: dict[str, Any]) -> None:
    assert all(told[name] > 1e-4 for name in ("weight-decay=0.1", "momentum=0.9", "clip=0.01"))


def test_the_learning_rate_rises_and_falls_by_its_schedule(told: dict[str, Any]) -> None:
    assert told["cosine"] == pytest.approx([0.5, 1.0, 1.0, 0.933013, 0.75, 0.5, 0.25, 0.066987], abs=1e-6)
    assert told["constant"] == [1.0] * 3


def test_figures_leave_the_warm_up_out(told: dict[str, Any]) -> None:
    figures = told["clock"]
    assert (figures["median_step_ms"], figures["p95_step_ms"]) == (1050.0, 1900.0)
    assert (figures["timed_steps"], figures["timed_s"], figures["untimed_steps"]) == (20, 21.0, 10)
    assert figures["samples_per_s"] == round(80 / 21, 1) and figures["data_wait_share"] == round(1 / 21, 4)
    assert figures["step_spread"] == pytest.approx((1.9 - 0.2) / 1.1, abs=1e-3)


def test_bytes_are_counted_once_where_they_leave_the_host(told: dict[str, Any]) -> None:
    assert told["sent"] == 70 + 400


def test_a_gpus_use_is_what_nvidia_smi_says_of_it_meanwhile(told: dict[str, Any]) -> None:
    assert told["use"] == pytest.approx(0.6) and told["no nvidia-smi"] is None
    assert "--id=GPU-1 --query-gpu=utilization.gpu" in told["asked"]

"""Two ranks of small trainings with DeepSpeed's ZeRO on CPUs; the first prints what came of them as JSON.

Run by a Python that has torch and DeepSpeed, with nodectl/workloads on its path. The second rank is a fork.
"""

import importlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["DS_ACCELERATOR"] = "cpu"

# on a node these files lie in one folder, without the package
import options  # type: ignore[import-not-found]
import ranks  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from feed import Feed  # type: ignore[import-not-found]
from program import Training  # type: ignore[import-not-found]
from transformer import Transformer  # type: ignore[import-not-found]

# 20 samples a rank, 8 in a step: an epoch's third step has one micro-batch, and DeepSpeed is told of two
COURSE = ("--d-model=32", "--layers=2", "--heads=4", "--seq=4", "--samples=40", "--device=cpu", "--dropout=0")
STEP = ("--lr=0.01", "--optimizer=adamw", "--weight-decay=0.05", "--clip=0.5", "--schedule=cosine", "--warmup-steps=2")
STEPS = 7
WAYS = {
    "zero1": ("--parallel=zero1",),
    "zero2": ("--parallel=zero2",),
    "zero3": ("--parallel=zero3",),
    "zero2 optimizer": ("--parallel=zero2", "--offload=optimizer"),
    "zero3 parameters": ("--parallel=zero3", "--offload=parameters"),
    "zero1 sgd": ("--parallel=zero1", "--optimizer=sgd", "--momentum=0.9"),
    "zero3 bf16": ("--parallel=zero3", "--precision=bf16"),
}


def training(group: ranks.Ranks, *words: str) -> Any:
    """One as the command line makes it."""
    workload = Transformer()
    settings = options.parse(workload, (*COURSE, *STEP, f"--steps={STEPS}", *words))
    return Training(workload, settings, group)


def losses(made: Any, end: int = STEPS) -> list[float]:
    """Of the steps up to `end`, means over all ranks."""
    arriving = Feed(made.data, made.settings, made.group.device).steps(made.plan())
    return [made.strategy.mean_loss(made.train_step(next(arriving)[1])) for _ in range(made.step, end)]


def refused(group: ranks.Ranks, *words: str) -> str:
    """With which words."""
    try:
        training(group, *words)
    except SystemExit as error:
        return str(error)
    return ""


def both(group: ranks.Ranks) -> dict[str, Any]:
    """What the two ranks find together."""
    told: dict[str, Any] = {}
    for name, words in WAYS.items():
        made = training(group, *words, "--batch=4", "--accumulation=2")
        told[name] = {"losses": losses(made), "parameters": made.strategy.parameters}
    for name in ("zero1", "zero3", "zero3 bf16", "zero3 parameters"):
        first = training(group, *WAYS[name], "--batch=4", "--accumulation=2")
        losses(first, 3)
        saved = io.BytesIO()
        torch.save(first.state(), saved)
        second = training(group, *WAYS[name], "--batch=4", "--accumulation=2")
        second.restore(torch.load(io.BytesIO(saved.getvalue()), weights_only=True))
        told[f"{name} resumed"] = losses(second)
    state = first.state()
    told["of another"] = ""
    try:
        training(group, "--parallel=zero2", "--batch=4").strategy.load(state)
    except SystemExit as error:
        told["of another"] = str(error)
    told["parameters of zero2"] = refused(group, "--parallel=zero2", "--offload=parameters")
    told["no zero"] = refused(group, "--parallel=ddp", "--offload=optimizer")
    return told


def alone() -> dict[str, Any]:
    """The same training by one process, whose micro-batches are those of both ranks."""
    group = ranks.join("cpu")
    told = {}
    for name, words in {"single": (), "single sgd": WAYS["zero1 sgd"][1:]}.items():
        made = training(group, *words, "--batch=8", "--accumulation=2")
        told[name] = {"losses": losses(made), "parameters": made.strategy.parameters}
    return told


def main() -> None:
    folder = Path(sys.argv[1])
    importlib.import_module("deepspeed")  # once, before the fork
    told = alone()
    rank = 1 if os.fork() == 0 else 0
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", LOCAL_SIZE="2")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    ones = [torch.device("cpu"), "gloo", ("here", "here")]
    group = ranks.Ranks(rank, 2, rank, *ones)
    told.update(both(group))
    if rank == 0:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        os.wait()
    os._exit(0)


main()

"""What resnet50 and its data do, looked at in one process of a Python that has torch and torchvision: prints JSON.

Run with nodectl/workloads on its path, an empty folder and the parts as its arguments. The second rank is a fork.
"""

import contextlib
import io
import json
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# on a node these files lie in one folder, without the package
import program  # type: ignore[import-not-found]
import resnet50  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from cifar_files import unpacked  # type: ignore[import-not-found]
from feed import Feed  # type: ignore[import-not-found]
from options import parse  # type: ignore[import-not-found]
from program import Training
from ranks import Ranks, join  # type: ignore[import-not-found]
from resnet50 import ResNet, Shown

FOLDER = Path(sys.argv[1])
ALONE = Ranks(0, 1, 0, torch.device("cpu"), "none", ("here",))
TINY = ("--layers=10", "--batch=16", "--samples=80", "--device=cpu", f"--data={FOLDER}/none")


def settings(*options: str) -> Any:
    return parse(ResNet(), [*TINY, *options])


def read(where: Path) -> tuple[list[int], int]:
    found = resnet50.read(where)
    assert found is not None
    return [*found.training.labels.tolist(), *found.test.labels.tolist()], int(found.training.pixels[7, 2, 31, 30])


def said(call: Callable[[], object]) -> str:
    try:
        call()
    except (SystemExit, ValueError) as error:
        return str(error)
    return ""


def forms() -> dict[str, Any]:
    """The published folder read, and what is said of a broken one; the files' checksums are torchvision's to check."""
    cifar = resnet50._torchvision("torchvision.datasets.cifar")
    check, cifar.check_integrity = cifar.check_integrity, lambda *_: True
    told: dict[str, Any] = {"none": resnet50.read(FOLDER) is None}
    folder = unpacked(FOLDER)
    told["read"] = read(FOLDER)
    batch = folder / "data_batch_3"
    batch.unlink()
    told["missing"] = said(partial(ResNet().data, settings(f"--data={FOLDER}")))
    cifar.check_integrity = check
    told["broken"] = said(partial(resnet50.read, FOLDER))
    return told


def by_hand(picture: torch.Tensor, chance: int) -> torch.Tensor:
    """The same crop and flip one number at a time."""
    row, column, flip = chance % 9, chance // 9 % 9, chance // 81 % 2
    out = torch.zeros_like(picture)
    seen = picture.flip(-1) if flip else picture
    # the frame is black, and flipping it changes nothing
    for colour in range(3):
        for line in range(32):
            for place in range(32):
                y, x = line + row - 4, place + column - 4
                if 0 <= y < 32 and 0 <= x < 32:
                    out[colour, line, place] = seen[colour, y, x]
    return out


def shown() -> dict[str, Any]:
    """What crops, flips and normalising do."""
    pictures = resnet50.synthetic(40, 0).training
    data = Shown(pictures, "", 5)
    together, labels = data.batch(range(40), 3)
    alone = torch.cat([data.batch([index], 3)[0] for index in range(40)])
    backwards = data.batch(range(39, -1, -1), 3)[0].flip(0)
    chances = resnet50.chances(5, 3, torch.arange(40))
    hand = torch.stack([by_hand(pictures.pixels[index], int(chances[index])) for index in range(4)]).float() / 255
    mean, deviation = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2023, 0.1994, 0.2010])
    hand = (hand - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
    many = resnet50.chances(5, 3, torch.arange(162_000)) % 162
    other = Shown(pictures, "", 6)
    test = Shown(pictures, "", None).batch([0], 0)[0]
    return {
        "same": bool(torch.equal(together, alone) and torch.equal(together, backwards)),
        "by_hand": float((together[:4] - hand).abs().max()),
        "labels": bool(torch.equal(labels, pictures.labels)),
        "fewest_and_most": [int(each(torch.bincount(many, minlength=162))) for each in (torch.min, torch.max)],
        "other_epoch": float((data.batch(range(40), 4)[0] - together).abs().mean()),
        "other_seed": float((other.batch(range(40), 3)[0] - together).abs().mean()),
        "first": together.is_contiguous(),
        "test": float((test[0, 0] * 0.2023 + 0.4914 - pictures.pixels[0, 0] / 255).abs().max()),
    }


def trained(steps: int, *options: str, state: Any = None) -> Training:
    """After so many steps, from the beginning or from a state."""
    training = Training(ResNet(), settings("--steps=8", *options), ALONE)
    if state is not None:
        training.restore(state)
    feed = Feed(training.data, training.settings, ALONE.device)
    arriving = feed.steps(training.plan())
    for _ in range(training.step, steps):
        training.train_step(next(arriving)[1])
    return training


def weights(training: Training) -> torch.Tensor:
    return torch.cat([each.detach().float().flatten() for each in training.strategy.bare.state_dict().values()])


def course() -> dict[str, Any]:
    """A resume in the middle of the second epoch by a loader."""
    whole = trained(8)
    half = trained(7, "--workers=1").state()
    resumed = trained(8, "--workers=2", "--prefetch=1", state=half)
    return {
        "resumed": bool(torch.equal(weights(whole), weights(resumed))),
        "epochs": whole.epoch + 1,
        "blocks": [len(ResNet().blocks(ResNet().model(settings(f"--layers={layers}")))) for layers in (10, 50)],
    }


def counted() -> dict[int, Any]:
    """FLOPs and parameters beside torch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    told = {}
    for layers in (18, 50):
        own = settings(f"--layers={layers}")
        model = ResNet().model(own)
        flops = ResNet().flops_per_sample(own, model)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.eval()(torch.zeros(1, 3, 32, 32))
        told[layers] = [flops, 3 * counter.get_total_flops(), sum(each.numel() for each in model.parameters())]
    return told


class Third:
    """A rank of three that share a test set; what they find is put together by the one who looks."""

    world_size, device = 3, torch.device("cpu")

    def __init__(self, rank: int) -> None:
        self.rank, self.calls, self.right = rank, 0, 0.0

    def mean(self, value: torch.Tensor) -> float:
        self.right = float(value)
        return 0.0


def shared() -> dict[str, Any]:
    """A test set of 16 on three ranks in batches of 2: who guesses class 3 always is right where 3 stands."""
    workload, own = ResNet(), settings("--batch=2")
    workload.data(own)
    test = workload._test
    assert test is not None
    ranks = [Third(rank) for rank in range(3)]
    for rank in ranks:

        def predict(inputs: Any, rank: Third = rank) -> torch.Tensor:
            rank.calls += 1
            return torch.nn.functional.one_hot(torch.full((len(inputs[0]),), 3), 10)

        workload.evaluate(own, rank, predict)  # as much of a group as it needs
    return {
        "right": sum(rank.right for rank in ranks),
        "threes": int((test.pictures.labels == 3).sum()),
        "calls": [rank.calls for rank in ranks],
        "len": len(test),
    }


def rests() -> dict[str, Any]:
    """Micro-batches of two epochs whose last sample would be alone, all trained on; and what cannot be one."""
    told: dict[str, Any] = {"cut": {}}
    for options in (
        "--samples=33",
        "--samples=37 --batch=4 --accumulation=2",
        "--samples=7 --batch=2 --accumulation=2",
    ):
        begun = Training(ResNet(), settings(*options.split(), "--epochs=2"), ALONE)
        steps = [[len(wanted.indices) for wanted in parts] for parts in begun.plan()]
        told["cut"][options] = [steps, begun.total_steps]
    with contextlib.redirect_stdout(io.StringIO()):
        program.train(ResNet(), settings("--samples=17", "--epochs=2"), ALONE)
    for options in ("--batch=1", "--samples=1"):
        told[options] = said(lambda own=options: Training(ResNet(), settings(own), ALONE))  # type: ignore[misc]
    return told


def two_ranks() -> dict[str, Any]:
    """Rank 0's lines of a whole training by two, and what is said where they have other data."""
    place = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update({**place, "MASTER_PORT": str(probe.getsockname()[1])})
    child = os.fork()
    rank = int(child == 0)
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank)})
    group = join("cpu")
    lines = io.StringIO()
    with contextlib.redirect_stdout(lines):
        program.train(ResNet(), settings("--samples=640", "--epochs=2", "--log-every=20"), group)
    own = settings(f"--samples={16 + 4 * rank}")
    other = said(lambda: Training(ResNet(), own, group))
    dist.destroy_process_group()
    if rank:
        os._exit(0 if "do not have the same data" in other else 1)
    return {"lines": lines.getvalue().splitlines(), "other": other, "child": os.waitpid(child, 0)[1]}


parts = {each.__name__: each for each in (forms, shown, course, counted, shared, rests, two_ranks)}
sys.stdout.write(json.dumps({name: parts[name]() for name in sys.argv[2:]}))

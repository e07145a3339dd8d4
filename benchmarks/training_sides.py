"""The sides of benchmarks/training.py: the articles' loops, with what they need to run, and the workloads.

Run by a Python that has torch and torchvision, with the names of an article's workload and of a side; for each line of
its standard input, a number of steps, it prints how many seconds they took.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_WORKLOADS = Path(__file__).resolve().parents[1] / "nodectl" / "workloads"
# the articles' shapes with fewer layers and smaller batches, so that a step takes about half a second on two cores
LAYERS, BATCH, SEQ, WIDTH = 2, 8, 128, 512
PICTURES = 32
SAMPLES = 256
_LONG = 1_000_000


def article_0(*, same_network: bool) -> Iterator[None]:
    """000's loop. As it is written it attends over the batch; `same_network` makes its network that of the workload.

    That one attends over the sequence, normalises before each part of a layer, and once more at the end.
    """
    import torch
    from torch import nn, optim
    from torch.utils.data import DataLoader, TensorDataset

    class TransformerModel(nn.Module):  # type: ignore[misc]  # torch is not there where mypy runs
        def __init__(self, d_model: int = WIDTH, nhead: int = 8, num_layers: int = LAYERS) -> None:
            super().__init__()
            own: dict[str, bool] = {"batch_first": True, "norm_first": True} if same_network else {}
            self.encoder_layer = nn.TransformerEncoderLayer(d_model, nhead, **own)
            last = nn.LayerNorm(d_model) if same_network else None
            self.transformer = nn.TransformerEncoder(self.encoder_layer, num_layers, last, enable_nested_tensor=False)
            self.fc = nn.Linear(d_model, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.transformer(x).mean(dim=1))

    model = TransformerModel()
    dataset = TensorDataset(torch.randn(SAMPLES, SEQ, WIDTH), torch.randn(SAMPLES, 1))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=0.001)
    while True:
        for batch_x, batch_y in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch_x), batch_y)
            loss.backward()
            optimizer.step()
            yield


def article_3() -> Iterator[None]:
    """003's loop, without the pretrained weights: pictures as torchvision's data set gives them, one at a time."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    pil, numpy = importlib.import_module("PIL.Image"), importlib.import_module("numpy")
    workload = importlib.import_module("resnet50")
    workload._torchvision()  # PyPI's build needs help beside torch for CPUs
    models, transforms = (
        importlib.import_module("torchvision.models"),
        importlib.import_module("torchvision.transforms"),
    )
    transform = transforms.Compose(
        [
            transforms.RandomHorizontalFlip(),
            transforms.RandomCrop(32, padding=4),
            transforms.ToTensor(),
            transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        ]
    )
    pictures = workload.synthetic(SAMPLES, 0).training
    pixels = numpy.asarray(pictures.pixels.permute(0, 2, 3, 1).contiguous())

    class Cifar(Dataset):  # type: ignore[misc]  # as above
        def __len__(self) -> int:
            return len(pixels)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return transform(pil.fromarray(pixels[index])), int(pictures.labels[index])

    model = models.resnet50()
    model.fc = nn.Linear(model.fc.in_features, 10)
    loader = DataLoader(Cifar(), batch_size=PICTURES, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    model.train()
    while True:
        for inputs, labels in loader:
            loss = criterion(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


def workload(name: str, *options: str) -> Iterator[None]:
    """Yield a workload's own training, by its program's options."""
    # first, as in a program of its own: it sets how OpenMP waits
    importlib.import_module("program")
    import torch

    feed, training = importlib.import_module("feed"), importlib.import_module("training")
    parse, ranks = importlib.import_module("options").parse, importlib.import_module("ranks")
    kind = importlib.import_module(name)
    made = kind.Transformer() if name == "transformer" else kind.ResNet()
    group = ranks.Ranks(0, 1, 0, torch.device("cpu"), "none", ("here",))
    settings = parse(made, [*options, "--device=cpu", f"--samples={SAMPLES}", f"--epochs={_LONG}"])
    one = training.Training(made, settings, group)
    for _, parts in feed.Feed(one.data, settings, group.device).steps(one.plan()):
        one.train_step(parts)
        yield


_TRANSFORMER = ("--preset=article-0", f"--layers={LAYERS}", f"--batch={BATCH}", f"--seq={SEQ}", f"--d-model={WIDTH}")
_RESNET = ("--preset=article-3", f"--batch={PICTURES}", "--data=/nonexistent")


def _ours(name: str, *options: str) -> Callable[[], Iterator[None]]:
    return lambda: workload(name, *(_TRANSFORMER if name == "transformer" else _RESNET), *options)


# by article: its loop, the same maths, and options
SIDES: dict[str, dict[str, Callable[[], Iterator[None]]]] = {
    "transformer": {
        "article": lambda: article_0(same_network=True),
        "as_written": lambda: article_0(same_network=False),
        "same": _ours("transformer"),
        "fused": _ours("transformer", "--fused"),
        "bf16": _ours("transformer", "--precision=bf16"),
        "compiled": _ours("transformer", "--precision=bf16", "--compile"),
    },
    "resnet50": {
        "article": article_3,
        "same": _ours("resnet50"),
        "channels_last": _ours("resnet50", "--channels-last"),
        "bf16": _ours("resnet50", "--channels-last", "--precision=bf16"),
        "worker": _ours("resnet50", "--channels-last", "--precision=bf16", "--workers=1"),
    },
}


def main(arguments: Sequence[str]) -> None:
    """Take turns as they are asked for, until there are no more."""
    sys.path.insert(0, str(_WORKLOADS))
    name, side = arguments
    steps = SIDES[name][side]()
    for line in sys.stdin:
        began_s = time.perf_counter()
        for _ in range(int(line)):
            next(steps)
        sys.stdout.write(f"{time.perf_counter() - began_s}\n")
        sys.stdout.flush()
    os._exit(0)  # loader processes need no leave


if __name__ == "__main__":
    main(sys.argv[1:])

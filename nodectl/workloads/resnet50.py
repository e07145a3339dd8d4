"""A ResNet of torchvision trained on CIFAR-10, or on synthetic pictures if there is none, and tested each epoch.

Run it under torchrun over many hosts, or by itself. The last line of rank 0 is a JSON summary.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nodectl.workloads.options import start
    from nodectl.workloads.ranks import Ranks
    from nodectl.workloads.settings import Settings
    from nodectl.workloads.workload import Batch, Data, Predict, Workload
else:  # on a node these files lie in one folder, without the package
    from options import start
    from pytorch import nn, torch
    from workload import Data, Workload

CLASSES = 10
SIDE = 32
COLOURS = 3


class Pictures(NamedTuple):
    """`pixels` are uint8 (count, 3, 32, 32), `labels` int64 (count)."""

    pixels: torch.Tensor
    labels: torch.Tensor


class Published(NamedTuple):
    """The pictures to train on and those to test with."""

    training: Pictures
    test: Pictures


def read(folder: Path) -> Published | None:
    """CIFAR-10 out of a folder, None if it holds none; ValueError, with the folder, if it is broken."""
    if not (folder / "cifar-10-batches-py").is_dir():
        return None
    cifar = _torchvision("torchvision.datasets.cifar")
    try:
        sets = [cifar.CIFAR10(str(folder), train=train) for train in (True, False)]
    except (RuntimeError, OSError) as error:
        raise ValueError(f"{folder}: {error}") from error
    # torchvision has colours last
    parts = [Pictures(torch.from_numpy(one.data).permute(0, 3, 1, 2), torch.tensor(one.targets)) for one in sets]
    return Published(*parts)


_PUBLISHED = "CIFAR-10"
PADDING = 4
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2023, 0.1994, 0.2010)
# residual blocks of the four stages; bottlenecks from 50 layers on
_STAGES = {
    10: (1, 1, 1, 1),
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
_BOTTLENECKS_FROM = 50
# a fifth of the synthetic pictures, as CIFAR-10 has one test picture for five to train on
_FOR_ONE_TEST = 5
_ARTICLE = {
    "layers": 50,
    "batch": 256,
    "epochs": 10,
    "samples": 50_000,
    "optimizer": "sgd",
    "lr": 0.01,
    "momentum": 0.9,
    "weight_decay": 0.0,
    "schedule": "constant",
    "clip": 0.0,
}
# of torchvision's compiled operators, those that its import declares further
_OPERATORS = ("nms", "qnms")
_declared: list[Any] = []


class Shown(Data):
    """Pictures as the network sees them: normalised, and cropped and flipped by chance where they are trained on."""

    def __init__(self, pictures: Pictures, description: str, seed: int | None, *, channels_last: bool = False) -> None:
        """`seed` of the crops and flips; None shows the pictures as they are."""
        self.pictures, self.words, self.seed = pictures, description, seed
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._mean = torch.tensor(MEAN).view(-1, 1, 1)
        self._deviation = torch.tensor(DEVIATION).view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.pictures.labels)

    def batch(self, indices: Sequence[int], epoch: int) -> Batch:
        """Pictures (len(indices), 3, 32, 32) in float32, and labels (len(indices))."""
        where = torch.tensor(indices)
        pixels = self.pictures.pixels[where]
        if self.seed is not None:
            pixels = shifted(pixels, chances(self.seed, epoch, where))
        shown = pixels.to(torch.float32).div_(255).sub_(self._mean).div_(self._deviation)
        return shown.contiguous(memory_format=self._format), self.pictures.labels[where]


def chances(seed: int, epoch: int, indices: torch.Tensor) -> torch.Tensor:
    """Return a number below 2**32 for each sample, by seed, epoch and index alone: every rank gets the same."""
    begun = _mixed(_mixed(torch.tensor(seed & 0xFFFFFFFF)) ^ epoch)
    return _mixed(begun ^ indices)


def _mixed(key: torch.Tensor) -> torch.Tensor:
    """Return a hash of 32 bits; the factor is small enough that no product leaves 63."""
    for _ in range(2):
        key = (key ^ (key >> 16)) * 0x45D9F3B & 0xFFFFFFFF
    return key ^ (key >> 16)


def shifted(pixels: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    """Pictures flipped or not, with a black frame of `PADDING`, cut to their size again at one of 9 x 9 places."""
    side, places = pixels.shape[-1], 2 * PADDING + 1
    framed = nn.functional.pad(pixels, (PADDING,) * 4)
    rows = (chance % places).view(-1, 1) + torch.arange(side)
    columns = (chance // places % places).view(-1, 1) + torch.arange(side)
    flips = (chance // places**2 % 2).view(-1, 1).bool()
    columns = torch.where(flips, framed.shape[-1] - 1 - columns, columns)
    which = torch.arange(len(pixels)).view(-1, 1, 1)
    return framed[which, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def synthetic(count: int, seed: int) -> Published:
    """Pictures that can be learnt: each class has a coarse pattern, the same seen in a mirror, under much noise."""
    random = torch.Generator().manual_seed(seed)
    coarse = torch.rand(CLASSES, COLOURS, 4, 4, generator=random)
    coarse = (coarse + coarse.flip(-1)) / 2
    patterns = coarse.repeat_interleave(8, dim=-2).repeat_interleave(8, dim=-1)

    def drawn(number: int) -> Pictures:
        labels = torch.randint(CLASSES, (number,), generator=random)
        shape = (number, COLOURS, SIDE, SIDE)
        noise = torch.randint(256, shape, generator=random, dtype=torch.uint8)
        # in place, picture by picture: in float32 all of them would be four times as large
        for picture, label in zip(noise, labels.tolist()):  # noqa: B905  # Python 3.8 has no strict
            picture.copy_(picture * 0.8 + patterns[label] * 51)
        return Pictures(noise, labels)

    return Published(drawn(count), drawn(-(-count // _FOR_ONE_TEST)))


class ResNet(Workload):
    """Classification into ten classes; the loss is the cross entropy."""

    name = "resnet50"
    summary = "Train a ResNet on CIFAR-10, or on synthetic pictures where there is none."
    presets = MappingProxyType({"article-3": {**_ARTICLE, "precision": "fp32"}})
    defaults = MappingProxyType({**_ARTICLE, "samples": 1024})

    def __init__(self) -> None:
        self._test: Shown | None = None

    # batch norms divide by what their samples differ by, and a small picture is one pixel at the end
    smallest_batch = 2

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Its depth, and where pictures come from."""
        parser.add_argument("--layers", type=int, choices=sorted(_STAGES), default=50, help="depth of the ResNet")
        parser.add_argument(
            "--data",
            type=Path,
            default=Path("data"),
            help="folder with cifar-10-batches-py; without it there, pictures are synthetic",
        )

        parser.add_argument("--channels-last", action="store_true", help="colours of a pixel lie side by side")

    def identity(self, settings: Settings) -> dict[str, Any]:
        """Its depth."""
        return {"layers": settings.own.layers}

    def data(self, settings: Settings) -> Data:
        """Return the training pictures; those of the test are kept for `evaluate`."""
        try:
            published = read(settings.own.data)
        except ValueError as error:
            raise SystemExit(f"{error}; unpack CIFAR-10 anew, or name another folder by --data") from error
        description = _PUBLISHED
        if published is None:
            published, description = synthetic(settings.samples, settings.seed), "synthetic pictures"
        last = settings.own.channels_last
        self._test = Shown(published.test, description, None, channels_last=last)
        return Shown(published.training, description, settings.seed, channels_last=last)

    def model(self, settings: Settings) -> nn.Module:
        """torchvision's, with ten outputs and weights of its own drawing."""
        resnet = _torchvision("torchvision.models.resnet")
        layers = settings.own.layers
        kind = resnet.Bottleneck if layers >= _BOTTLENECKS_FROM else resnet.BasicBlock
        model: nn.Module = resnet.ResNet(kind, list(_STAGES[layers]), num_classes=CLASSES)
        return model.to(memory_format=torch.channels_last) if settings.own.channels_last else model

    def loss(self, answer: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Cross entropy."""
        entropy: torch.Tensor = nn.functional.cross_entropy(answer.float(), batch[-1])
        return entropy

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the residual blocks of all stages."""
        return tuple(block for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for block in stage)

    def flops_per_sample(self, settings: Settings, model: nn.Module) -> float:
        """Three times the forward pass: its convolutions and its last layer, counted while one picture goes through."""
        counted: list[float] = []

        def count(module: nn.Module, _: Any, answer: torch.Tensor) -> None:
            # each number of the answer is a sum over the weights of one output
            counted.append(2.0 * answer.numel() * module.weight.numel() / module.weight.shape[0])

        weighted = [layer for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
        hooks = [layer.register_forward_hook(count) for layer in weighted]
        was_training = model.training
        model.eval()
        with torch.no_grad():
            model(torch.zeros(1, COLOURS, SIDE, SIDE, device=next(model.parameters()).device))
        model.train(was_training)
        for hook in hooks:
            hook.remove()
        return 3 * sum(counted)

    def evaluate(self, settings: Settings, group: Ranks, predict: Predict) -> dict[str, float]:
        """Return the part of all test pictures that is told right; each is shown to one rank, once."""
        test = self._test
        if test is None:
            return {}
        mine = range(group.rank, len(test), group.world_size)
        right = torch.zeros((), dtype=torch.float64, device=group.device)
        # every rank asks as often as the one with most, since the model may be spread over all
        most = len(range(0, len(test), group.world_size))
        for begin in range(0, most, settings.batch):
            indices = mine[begin : begin + settings.batch]
            shown, labels = test.batch(indices or range(1), 0)
            answer = predict([shown.to(group.device)]).argmax(dim=1)
            right += (answer == labels.to(group.device)).sum() if indices else 0
        return {"test_accuracy": group.mean(right) * group.world_size / len(test)}


def _torchvision(module: str) -> Any:
    spec = importlib.util.find_spec("torchvision")
    what = "`nodectl provision --tags pytorch` installs the torchvision of the stack, which was built for its torch"
    if spec is None or spec.origin is None:
        raise SystemExit(f"resnet50 needs torchvision, and {sys.executable} has none: {what}")
    _declare_operators(Path(spec.origin).parent)
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError, OSError) as error:
        beside = f"beside torch {torch.__version__}"
        raise SystemExit(f"torchvision cannot be imported {beside} ({error}): {what}") from error


def _declare_operators(folder: Path) -> None:
    """Let a torchvision be imported whose compiled part cannot be loaded: one that was built for CUDA, on a CPU node.

    Its import declares more of its operators, and fails if there are none; a ResNet needs none of them.
    """
    if _declared or not hasattr(torch.library, "Library"):
        return
    try:
        for library in folder.glob("_C*.so"):
            torch.ops.load_library(str(library))
    except OSError:
        operators = torch.library.Library("torchvision", "DEF")
        for name in _OPERATORS:
            operators.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        _declared.append(operators)  # they last as long as it does


if __name__ == "__main__":
    start(ResNet())

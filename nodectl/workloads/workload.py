"""What a training program is made of: its data, its model, its loss, and the options that belong to it alone."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import torch
    from torch import nn

    from nodectl.workloads.layout import Divisible
    from nodectl.workloads.ranks import Ranks
    from nodectl.workloads.settings import Settings

    # what the model takes, then the targets
    Batch: TypeAlias = "tuple[torch.Tensor, ...]"
    # the trained model's answer, without gradients
    Predict: TypeAlias = "Callable[[Sequence[torch.Tensor]], torch.Tensor]"


class Data(ABC):
    """Samples by their numbers. `words` says what they are, for every result that comes from them."""

    words = ""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many samples there are."""

    @abstractmethod
    def batch(self, indices: Sequence[int], epoch: int) -> Batch:
        """Return these samples, on the CPU: a function of the arguments and the seed alone."""


class Workload(ABC):
    """A training program; `unit` is what its speed is told in beside samples: samples, or tokens."""

    name = ""
    summary = ""
    unit = "samples"
    # of options: by their destinations; what stands on the command line goes before it
    presets: Mapping[str, Mapping[str, Any]] = {}
    defaults: Mapping[str, Any] = {}
    # samples that a micro-batch needs at least
    smallest_batch = 1

    @abstractmethod
    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options that no other workload has."""

    def check(self, settings: Settings) -> None:  # noqa: B027  # most have no rule of their own
        """Raise ValueError with the rule that these options break."""

    @abstractmethod
    def identity(self, settings: Settings) -> dict[str, Any]:
        """Return what a checkpoint must have been made with to fit at all."""

    @abstractmethod
    def data(self, settings: Settings) -> Data:
        """Return what is trained on; SystemExit if it is not there."""

    @abstractmethod
    def model(self, settings: Settings) -> nn.Module:
        """Return the model, made again on the default device; its weights by the seed that was set before."""

    def values(self, settings: Settings, name: str, shape: Sequence[int]) -> torch.Tensor | None:
        """Return the first values of one parameter, on the CPU; None where only the whole model has them."""
        return None

    def divisible(self, settings: Settings) -> Divisible | None:
        """Return what --tensor and --stages share out; None of a model that they cannot cut."""
        return None

    @abstractmethod
    def loss(self, answer: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the mean over a micro-batch, in float32."""

    @abstractmethod
    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the repeated layers of the bare model, in their order."""

    def units_per_sample(self, settings: Settings) -> int:
        """Return how many of `unit` a sample has."""
        return 1

    @abstractmethod
    def flops_per_sample(self, settings: Settings, model: nn.Module) -> float:
        """Floating-point operations that a training step needs for one sample: forward and backward, nothing twice."""

    def evaluate(self, settings: Settings, group: Ranks, predict: Predict) -> dict[str, float]:
        """Figures beside the loss after an epoch, over all ranks, all of which call it; nothing without a test set."""
        return {}

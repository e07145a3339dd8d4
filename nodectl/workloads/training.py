"""One training on one rank: its task, its model, everything that a checkpoint holds, and the step that changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

if TYPE_CHECKING:
    from nodectl.workloads import ranks, settings
else:  # on a node these files lie in one folder, without the package
    import ranks
    import settings

VOCABULARY = 64
NOISE = 0.1


class Task:
    """A regression task that can be learnt, equal on every host and device, and far smaller than what it feeds.

    `samples` sequences of `length` vectors of `width`, each with one number to predict.

    A sequence is a row of symbols; each symbol has a fixed vector (what the model sees) and a fixed worth; the target
    is the normalised sum of the worths, plus noise of deviation `NOISE`: no model gets below a loss of `NOISE` squared.
    """

    def __init__(self, samples: int, length: int, width: int, seed: int, device: torch.device) -> None:
        # always drawn on the CPU: a GPU's generator gives other numbers
        random = torch.Generator().manual_seed(seed)
        symbols = torch.randint(VOCABULARY, (samples, length), generator=random)
        worth = torch.randn(VOCABULARY, generator=random)
        targets = (worth - worth.mean())[symbols].sum(dim=1) / (worth.std() * length**0.5)
        targets += NOISE * torch.randn(samples, generator=random)
        self.vectors = torch.randn(VOCABULARY, width, generator=random).to(device)
        self.symbols = symbols.to(device)
        self.targets = targets.unsqueeze(1).to(device)

    def __len__(self) -> int:
        return len(self.symbols)

    def batch(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (len(indices), length, width) and targets (len(indices), 1)."""
        where = torch.tensor(indices, device=self.symbols.device)
        return self.vectors[self.symbols[where]], self.targets[where]


class Transformer(nn.Module):  # type: ignore[misc]  # torch is not there where mypy runs
    """Encoder, mean over the sequence, one number a sample."""

    def __init__(self, options: settings.Settings) -> None:
        super().__init__()
        # norm_first: the other order needs a warm-up of the learning rate to train six layers at 1e-3
        layer = nn.TransformerEncoderLayer(
            options.d_model,
            options.heads,
            4 * options.d_model,
            dropout=options.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, options.layers, norm=nn.LayerNorm(options.d_model), enable_nested_tensor=False
        )
        self.head = nn.Linear(options.d_model, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, seq, d_model) to (batch, 1)."""
        answer: torch.Tensor = self.head(self.encoder(inputs).mean(dim=1))
        return answer


class Training:
    """The state of one training on one rank: everything that a checkpoint holds, and the step that changes it."""

    def __init__(self, options: settings.Settings, group: ranks.Ranks) -> None:
        self.options, self.group = options, group
        self.precision = pick_precision(options.precision, group.device)
        torch.manual_seed(options.seed)
        model = Transformer(options).to(group.device)
        torch.manual_seed(options.seed + 1 + group.rank)  # dropout differs between ranks, the weights do not
        self.task = Task(options.samples, options.seq, options.d_model, options.seed, group.device)
        self.sampler: DistributedSampler[int] = DistributedSampler(
            range(len(self.task)), group.world_size, group.rank, seed=options.seed
        )
        self.model = self._parallel(model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=options.lr)
        self.scaler = _scaler(self.precision == "fp16")
        self.epoch = self.step = self.taken = 0  # `taken`: samples of this epoch that this rank has had
        self.losses: dict[str, float] = {}

    def _parallel(self, model: nn.Module) -> nn.Module:
        if self.group.world_size == 1:
            return model
        on_gpu = self.group.device.type == "cuda"
        wrapped: nn.Module = DistributedDataParallel(model, device_ids=[self.group.local_rank] if on_gpu else None)
        return wrapped

    @property
    def bare_model(self) -> nn.Module:
        """The model without the data-parallel wrapper."""
        model: nn.Module = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        return model

    @property
    def total_steps(self) -> int:
        """How many steps the whole training has."""
        an_epoch = -(-self.sampler.num_samples // self.options.batch)
        return self.options.steps or an_epoch * self.options.epochs

    @property
    def begun_epochs(self) -> int:
        """The epoch of the step just done, from 1."""
        return self.epoch + 1

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(parameter.numel() for parameter in self.bare_model.parameters())

    def batches(self) -> Iterator[list[int]]:
        """This rank's share of the samples from where the training stands to its last step, epoch after epoch."""
        while self.step < self.total_steps:
            self.sampler.set_epoch(self.epoch)
            mine = list(self.sampler)
            while self.taken < len(mine) and self.step < self.total_steps:
                yield mine[self.taken : self.taken + self.options.batch]
            if self.taken >= len(mine):
                self.epoch, self.taken = self.epoch + 1, 0

    def train_step(self, indices: list[int]) -> torch.Tensor:
        """One optimiser step over these samples; the loss of this rank, still on its device."""
        inputs, targets = self.task.batch(indices)
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            loss: torch.Tensor = nn.functional.mse_loss(self.model(inputs).float(), targets)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)  # the limit is meant for the true gradients
        nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        self.taken += len(indices)
        return loss

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = torch.float16 if self.precision == "fp16" else torch.bfloat16
        autocast: AbstractContextManager[Any] = torch.autocast(
            self.group.device.type, dtype=dtype, enabled=self.precision in ("fp16", "bf16")
        )
        return autocast

    def state(self) -> dict[str, Any]:
        """All that the next step depends on; every rank must call it."""
        return {
            "settings": self.options.model,
            "course": self.course,
            "model": self.bare_model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "taken_by_all": self.taken * self.group.world_size,
            "losses": self.losses,
            "random": [ranks.to_tensor(own) for own in self.group.gather(ranks.to_bytes(self._random()))],
        }

    @property
    def course(self) -> dict[str, Any]:
        """What must be equal for a resumed run to repeat an uninterrupted one."""
        return {**self.options.course, "ranks": self.group.world_size, "precision": self.precision}

    def differences(self, course: dict[str, Any]) -> list[str]:
        """What was otherwise in the run that `course` comes from."""
        return [
            f"{name} was {course.get(name)}, is {now}" for name, now in self.course.items() if course.get(name) != now
        ]

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; SystemExit where it belongs to another model."""
        if state["settings"] != self.options.model:
            raise SystemExit(
                f"the checkpoint is of another model ({state['settings']}, this one is {self.options.model}): "
                "choose another --checkpoint-dir, or --no-resume to set it aside"
            )
        self.bare_model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch, self.step, self.losses = state["epoch"], state["step"], state["losses"]
        self.taken = state["taken_by_all"] // self.group.world_size
        if len(state["random"]) == self.group.world_size:
            self._set_random(state["random"][self.group.rank])

    # what dropout draws from, on the device that computes
    def _random(self) -> torch.Tensor:
        on_gpu = self.group.device.type == "cuda"
        state: torch.Tensor = torch.cuda.get_rng_state(self.group.device) if on_gpu else torch.get_rng_state()
        return state

    def _set_random(self, state: torch.Tensor) -> None:
        if self.group.device.type == "cuda":
            torch.cuda.set_rng_state(state, self.group.device)
        else:
            torch.set_rng_state(state)


def pick_precision(wanted: str, device: torch.device) -> str:
    """The precision to compute in; SystemExit where the device lacks it."""
    if device.type == "cpu":
        if wanted == "fp16":
            raise SystemExit("--precision fp16 needs a GPU; bf16 and fp32 work on a CPU")
        return {"auto": "fp32", "tf32": "fp32"}.get(wanted, wanted)
    bf16 = torch.cuda.is_bf16_supported()
    if wanted == "bf16" and not bf16:
        raise SystemExit(f"{torch.cuda.get_device_name(device)} has no bf16: use --precision fp16")
    chosen = ("bf16" if bf16 else "fp16") if wanted == "auto" else wanted
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = chosen == "tf32"
    return chosen


def _scaler(enabled: bool) -> Any:
    # torch.amp has it since 2.3
    return (
        torch.amp.GradScaler("cuda", enabled=enabled)
        if hasattr(torch.amp, "GradScaler")
        else (torch.cuda.amp.GradScaler(enabled=enabled))
    )

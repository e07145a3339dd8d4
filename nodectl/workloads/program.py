"""What every workload's program does: train by its options, say how it goes, save and resume, sum up."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

# before torch loads OpenMP: where ranks share cores, threads that wait by spinning make a step twenty times as long
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DistributedSampler

if TYPE_CHECKING:
    from nodectl.workloads import checkpoint, dynamic_batch, options, parallel, ranks
    from nodectl.workloads.feed import Feed, Wanted
    from nodectl.workloads.settings import ROUNDING, Refused, Settings
    from nodectl.workloads.usage import PARTS, Clock, Usage
    from nodectl.workloads.workload import Batch, Data, Workload
else:  # on a node these files lie in one folder, without the package
    import checkpoint
    import dynamic_batch
    import options
    import parallel
    import ranks
    from feed import Feed, Wanted
    from settings import ROUNDING, Refused
    from usage import PARTS, Clock, Usage


# a run that ends by time: its length as far as anybody knows, and as its clock takes it, for a short warm-up
_ENDLESS, _SHORT = 10**9, 6


class Training:
    """The state of one training on one rank: everything that a checkpoint holds, and the step that changes it."""

    def __init__(self, workload: Workload, settings: Settings, group: ranks.Ranks) -> None:
        self.workload, self.settings, self.group = workload, settings, group
        self.parallel = parallel.check(workload, settings, group.world_size)
        self.precision = pick_precision(settings.precision, group.device)
        self.data = workload.data(settings)
        _agree(group, self.data)
        torch.manual_seed(settings.seed)
        self.strategy = parallel.make(self.parallel, workload, settings, group, self.precision)
        # dropout differs between those who have different samples, the weights do not
        torch.manual_seed(settings.seed + 1 + self.strategy.data_rank)
        trained = len(self.data) - settings.held_out
        if trained < 1:
            raise Refused(f"--held-out {settings.held_out} leaves nothing to train on of {len(self.data)} samples")
        self.sampler: DistributedSampler[int] = DistributedSampler(
            range(trained), self.strategy.data_size, self.strategy.data_rank, seed=settings.seed
        )
        if min(self.sampler.num_samples, settings.batch) < workload.smallest_batch:
            raise Refused(
                f"--batch {settings.batch} of {self.sampler.num_samples} samples a rank: a micro-batch of "
                f"{workload.name} has {workload.smallest_batch} samples at least"
            )
        self.epoch = self.step = self.taken = 0  # `taken`: samples of this epoch that this rank has had
        self.dynamic = dynamic_batch.DynamicBatch(settings) if settings.dynamic_batch else None
        if settings.warmup_steps > self.total_steps:
            raise Refused(
                f"--warmup-steps {settings.warmup_steps} of {self.total_steps} steps: the learning rate would never be "
                "what --lr says; warm up in fewer steps, or train for more"
            )
        self.losses: dict[str, float] = {}
        self.evaluated: dict[str, float] = {}
        self.curve: list[tuple[float, float]] = []  # of this run: seconds of its steps so far, and the loss

    @property
    def batch(self) -> int:
        """Samples of a micro-batch of one rank, as it is now."""
        return self.settings.batch if self.dynamic is None else self.dynamic.batch

    @property
    def total_steps(self) -> int:
        """How many steps the whole training has, if the batch stays as it is now."""
        if self.settings.steps or self.settings.seconds:
            return self.settings.steps or _ENDLESS
        samples: int = self.sampler.num_samples
        epochs_after = self.settings.epochs - self.epoch - 1
        return self.step + self._steps(samples - self.taken) + epochs_after * self._steps(samples)

    def _steps(self, samples: int) -> int:
        """How many steps so many samples of a rank are; a rest that is no micro-batch goes with the last whole one."""
        whole, rest = divmod(samples, self.batch * self.settings.accumulation)
        return whole + int(rest >= self.workload.smallest_batch or (rest > 0 and not whole))

    def adapt(self, samples_per_s: float) -> str:
        """Let the batch follow the throughput, by the mean of what all ranks say; every rank must call it.

        What was changed, empty if nothing was; after a change `plan` is to be asked again.
        """
        if self.dynamic is None:
            return ""
        reading = torch.tensor(samples_per_s, dtype=torch.float64, device=self.group.device)
        return self.dynamic.update(self.group.mean(reading))

    @property
    def is_epoch_over(self) -> bool:
        """The step just done was the last of its epoch."""
        return bool(self.taken >= self.sampler.num_samples)

    def plan(self) -> Iterator[list[Wanted]]:
        """Yield the rank's micro-batches of each step, from where the training stands to its end, epoch after epoch."""
        epoch, taken = self.epoch, self.taken
        size, smallest = self.batch, self.workload.smallest_batch
        a_step = size * self.settings.accumulation
        mine = self._order(epoch)
        for _ in range(self.step, self.total_steps):
            if taken >= len(mine):
                epoch, taken = epoch + 1, 0
                mine = self._order(epoch)
            coming = mine[taken : taken + a_step + smallest]
            step = coming[:a_step] if len(coming) - a_step >= smallest else coming
            parts = [list(step[begin : begin + size]) for begin in range(0, len(step), size)]
            if len(parts) > 1 and len(parts[-1]) < smallest:
                alone = parts.pop()
                parts[-1] += alone
            taken += len(step)
            yield [Wanted(epoch, part) for part in parts]

    def _order(self, epoch: int) -> list[int]:
        self.sampler.set_epoch(epoch)
        return list(self.sampler)

    def train_step(self, parts: Sequence[Batch]) -> torch.Tensor:
        """One optimiser step over these micro-batches; the loss of this rank, still on its device."""
        if self.is_epoch_over:
            self.epoch, self.taken = self.epoch + 1, 0
        loss = self.strategy.gradients(parts)
        factor = 1.0 if self.dynamic is None else self.dynamic.lr_factor
        self.strategy.step(self.settings.lr * factor * self._schedule())
        self.step += 1
        self.taken += sum(len(part[0]) for part in parts)
        return loss

    def end_by_time(self, timed_s: float) -> None:
        """Make this step the last if the ranks' steps have lasted --seconds; every rank must call it."""
        seconds = self.settings.seconds
        if seconds and self.group.mean(torch.tensor(timed_s, device=self.group.device)) >= seconds:
            self.settings = replace(self.settings, steps=self.step)

    def held_out(self) -> dict[str, float]:
        """Return the mean loss on the samples that are not trained on, if there are any; every rank must call it."""
        count, size = self.settings.held_out, self.settings.batch
        if not count:
            return {}
        first = len(self.data) - count
        mine = range(first + self.strategy.data_rank, len(self.data), self.strategy.data_size)
        total = torch.zeros((), dtype=torch.float64, device=self.group.device)
        # every rank asks as often as the one with most, since the model may be spread over all
        for begin in range(0, -(-count // self.strategy.data_size), size):
            indices = mine[begin : begin + size]
            shown = self.data.batch(indices or range(first, first + 1), epoch=0)
            part = tuple(tensor.to(self.group.device) for tensor in shown)
            loss = self.workload.loss(self.strategy.predict(part[:-1]), part).double()
            total += len(indices) * loss if indices else 0
        return {"held_out_loss": self.group.mean(total) * self.strategy.data_size / count}

    def _schedule(self) -> float:
        warmup = self.settings.warmup_steps
        if self.step < warmup:
            return (self.step + 1) / warmup
        if self.settings.schedule == "constant":
            return 1.0
        done = (self.step - warmup) / max(1, self.total_steps - warmup)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))

    def state(self) -> dict[str, Any]:
        """All that the next step depends on; every rank must call it."""
        device = self.group.device
        # what dropout draws from, on the device that computes
        random = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
        return {
            "settings": self.workload.identity(self.settings),
            "course": self.course,
            **self.strategy.state(),
            "epoch": self.epoch,
            "step": self.step,
            "taken_by_all": self.taken * self.strategy.data_size,
            "dynamic_batch": None if self.dynamic is None else self.dynamic.state(),
            "losses": self.losses,
            "evaluated": self.evaluated,
            "random": [ranks.to_tensor(each) for each in self.group.gather(ranks.to_bytes(random))],
        }

    @property
    def course(self) -> dict[str, Any]:
        """Return what must be equal for a resumed run to repeat an uninterrupted one."""
        run_facts = {"ranks": self.strategy.data_size, "precision": self.precision, "data": self.data.words}
        return {**self.settings.course(self.total_steps), **run_facts}

    @property
    def options(self) -> dict[str, Any]:
        """Return the options that make it another training; without those that only round otherwise."""
        return {name: value for name, value in self.course.items() if name not in ROUNDING and value is not None}

    def differences(self, course: dict[str, Any]) -> list[str]:
        """Return what was otherwise in the run that `course` comes from."""
        return [
            f"{name} was {course.get(name)}, is {now}" for name, now in self.course.items() if course.get(name) != now
        ]

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; Refused where it belongs to another model."""
        identity = self.workload.identity(self.settings)
        if state["settings"] != identity:
            was = state["settings"]
            names = [name for name in {**was, **identity} if was.get(name) != identity.get(name)]
            what = ", ".join(f"{name} {was.get(name, 'none')}, here {identity.get(name, 'none')}" for name in names)
            way = "choose another --checkpoint-dir, or --no-resume to set it aside"
            raise Refused(f"the checkpoint is of another model ({what}): {way}")
        self.strategy.load(state)
        self.epoch, self.step, self.losses = state["epoch"], state["step"], state["losses"]
        self.evaluated = state.get("evaluated", {})
        if self.dynamic is not None and state.get("dynamic_batch"):
            self.dynamic.load(state["dynamic_batch"])
        self.taken = state["taken_by_all"] // self.strategy.data_size
        if len(state["random"]) == self.group.world_size:
            random = state["random"][self.group.rank]
            if self.group.device.type == "cuda":
                torch.cuda.set_rng_state(random, self.group.device)
            else:
                torch.set_rng_state(random)


def _agree(group: ranks.Ranks, data: Data) -> None:
    """SystemExit where a rank has found other data than the first: each would train on what the others do not know."""
    descriptions = [
        description.decode() for description in group.gather(f"{data.words} of {len(data)} samples".encode())
    ]
    for rank, description in enumerate(descriptions):
        if description != descriptions[0]:
            first = f"rank 0 on {group.hostnames[0]}: {descriptions[0]}"
            places = f"rank {rank} on {group.hostnames[rank]}: {description}; {first}"
            raise SystemExit(f"the ranks do not have the same data ({places}): put it on every host, at the same place")


def pick_precision(wanted: str, device: torch.device) -> str:
    """Return the precision to compute in; Refused where the device lacks it."""
    if device.type == "cpu":
        if wanted == "fp16":
            raise Refused("--precision fp16 needs a GPU; bf16 and fp32 work on a CPU")
        return {"auto": "fp32", "tf32": "fp32"}.get(wanted, wanted)
    bf16 = torch.cuda.is_bf16_supported()
    if wanted == "bf16" and not bf16:
        raise Refused(f"{torch.cuda.get_device_name(device)} has no bf16: use --precision fp16")
    chosen = ("bf16" if bf16 else "fp16") if wanted == "auto" else wanted
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = chosen == "tf32"
    return chosen


# of the losses over time that a summary tells
_POINTS = 200


def train(workload: Workload, settings: Settings, group: ranks.Ranks) -> None:
    """Train from where a checkpoint left off to the last step."""
    training = Training(workload, settings, group)
    resume(training)
    begun_at = training.step
    length = f"{settings.seconds:g} s" if training.total_steps == _ENDLESS else f"{training.total_steps} steps"
    _tell(group, f"training on {training.data.words}, {group.world_size} ranks, {length}")
    if training.strategy.notice:
        _tell(group, training.strategy.notice)
    clock = Clock(group.device, min(training.total_steps - begun_at, _SHORT if settings.seconds else _ENDLESS))
    usage = Usage(group, training.precision)
    feed = Feed(training.data, settings, group.device)
    arriving = feed.steps(training.plan())
    while training.step < training.total_steps:
        if clock.is_warm:
            usage.start()
        clock.start()
        waited_s = feed.waited_s
        samples, parts = next(arriving)
        loss = training.train_step(parts)
        clock.stop(samples * training.strategy.data_size, feed.waited_s - waited_s)
        if len(clock.durations_s) >= clock.warmup + PARTS:  # fewer steps would show no noise
            training.end_by_time(clock.timed_s)
        if training.step == 1 or _due(training, settings.log_every):
            note_loss(training, training.strategy.mean_loss(loss), clock)
            if adapted(training, clock):
                arriving = feed.steps(training.plan())
        if training.is_epoch_over or training.step == training.total_steps:
            note_figures(training)
        if _due(training, settings.checkpoint_every):
            save(training)
    usage.stop()
    _tell(group, json.dumps(summary(training, clock, usage, begun_at)))


def _due(training: Training, every: int) -> bool:
    return training.step % every == 0 or training.step == training.total_steps


def note_loss(training: Training, loss: float, clock: Clock) -> None:
    """Keep the loss of this step for the summary, and print a line."""
    training.losses.setdefault("first", loss)
    training.losses["last"] = loss
    training.curve.append((round(sum(clock.durations_s), 3), loss))
    every = training.settings.log_every
    median_ms, samples_per_s = clock.median_step_ms(every), clock.samples_per_s(every)
    speed = (
        "not timed yet" if median_ms is None else f"median step {median_ms:.1f} ms, mean {samples_per_s:.1f} samples/s"
    )
    _tell(training.group, f"{_place(training)} loss {loss:.6f} {speed}")


def adapted(training: Training, clock: Clock) -> bool:
    """Return whether the batch was changed by what the last steps said, which a line tells; every rank must call it."""
    samples_per_s = clock.samples_per_s(training.settings.log_every)
    change = "" if samples_per_s is None else training.adapt(samples_per_s)
    if change:
        _tell(training.group, f"{_place(training)} {change}")
    return bool(change)


def note_figures(training: Training) -> None:
    """Evaluate on the test set and held-out samples, if any, after an epoch and at the end; every rank must call it."""
    figures = training.workload.evaluate(training.settings, training.group, training.strategy.predict)
    figures = {**figures, **training.held_out()}
    training.evaluated.update(figures)
    summary = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in figures.items())
    if summary:
        _tell(training.group, f"{_place(training)} {summary}")


def _place(training: Training) -> str:
    total = "" if training.total_steps == _ENDLESS else f"/{training.total_steps}"
    return f"epoch {training.epoch + 1} step {training.step}{total}"


def save(training: Training) -> None:
    """Save a checkpoint if a folder was given; every rank must call it, rank 0 writes."""
    folder = training.settings.checkpoint_dir
    if folder is None:
        return
    state = training.state()
    if training.group.first:
        try:
            path = checkpoint.save(folder, training.step, state)
        except OSError as error:
            raise SystemExit(f"{error}; make room or choose another --checkpoint-dir") from error
        _tell(training.group, f"saved {path}")


def resume(training: Training) -> None:
    """Take the newest usable checkpoint, which only rank 0's host must have."""
    settings, group = training.settings, training.group
    if settings.checkpoint_dir is None:
        return
    data = None
    if group.first:
        try:
            checkpoint.prepare(settings.checkpoint_dir)
            if settings.resume:
                data = checkpoint.newest(settings.checkpoint_dir, print_now)
            else:
                checkpoint.set_aside(settings.checkpoint_dir)
        except OSError as error:
            place = f"--checkpoint-dir {settings.checkpoint_dir} on {group.hostnames[0]}"
            raise SystemExit(
                f"{place}: {error}: name a folder that this login can write, or another way to it"
            ) from error
    data = group.broadcast(data)
    if data is None:
        return
    state = checkpoint.load(data)
    training.restore(state)
    for line in training.differences(state["course"]):
        _tell(group, f"not an exact continuation: {line}")


def summary(training: Training, clock: Clock, usage: Usage, begun_at: int) -> dict[str, Any]:
    """Return the last line; losses belong to the whole training, times to this run. Every rank must call it."""
    group, losses, settings = training.group, training.losses, training.settings
    workload, strategy = training.workload, training.strategy
    figures = clock.figures()
    samples_per_s = figures["samples_per_s"]
    units = workload.units_per_sample(settings)
    joules = usage.joule_per_sample(clock)
    flops = workload.flops_per_sample(settings, strategy.bare)
    return {
        "workload": workload.name,
        "preset": settings.preset,
        "data": training.data.words,
        "first_loss": losses.get("first"),
        "last_loss": losses.get("last"),
        **training.evaluated,
        "losses": [list(point) for point in few(training.curve)],
        "options": training.options,
        "steps": training.step,
        "resumed_from_step": begun_at,
        **figures,
        f"{workload.unit}_per_s": None if samples_per_s is None else round(samples_per_s * units, 1),
        "joule_per_sample": joules,
        f"joule_per_{workload.unit.rstrip('s')}": None if joules is None else joules / units,
        **usage.figures(None if samples_per_s is None else samples_per_s * flops, figures["timed_steps"]),
        "world_size": group.world_size,
        "hosts": sorted(set(group.hostnames)),
        "params": strategy.parameters,
        "batch_per_rank": training.batch,
        "accumulation": settings.accumulation,
        "global_batch": training.batch * settings.accumulation * strategy.data_size,
        "compression": strategy.compression,
        "parallel": training.parallel,
        "tensor": settings.tensor,
        "stages": settings.stages,
        "recompute": settings.recompute,
        "compile": settings.compile,
        "precision": training.precision,
        "device": group.device.type,
        "backend": group.backend,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def few(curve: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `_POINTS` of (seconds, loss), evenly chosen and with the last: a summary is one line of a log."""
    every = -(-len(curve) // _POINTS)
    return curve[::-1][:: max(1, every)][::-1]


def _tell(group: ranks.Ranks, text: str) -> None:
    if group.first:
        print_now(text)


def print_now(text: str) -> None:
    """Print without waiting for a buffer to fill: somebody follows the log."""
    # one write a line: torchrun runs ranks unbuffered, and print would let another rank in before the line end
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@record  # type: ignore[untyped-decorator]  # torch is not there where mypy runs
def run(workload: Workload) -> None:
    """Train by the command line's options, as a rank of torchrun or alone."""
    settings = options.parse(workload)
    group = ranks.join(settings.device)
    place = f"rank {group.rank} on {group.hostnames[group.rank]}"
    print_now(
        f"{place}: local rank {group.local_rank}, device {group.device}, backend {group.backend}, pid {os.getpid()}"
    )
    try:
        train(workload, settings, group)
    except Refused as refused:
        options.refuse(workload, str(refused))
    finally:
        ranks.leave()
    ranks.end()

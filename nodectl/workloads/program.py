"""What every workload's program does: train by its options, say how it goes, save and resume, sum up."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

# before torch loads OpenMP: where ranks share cores, threads that wait by spinning make a step twenty times as long
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch.distributed.elastic.multiprocessing.errors import record

if TYPE_CHECKING:
    from nodectl.workloads import checkpoint, options, ranks
    from nodectl.workloads.feed import Feed
    from nodectl.workloads.settings import Refused, Settings
    from nodectl.workloads.training import Training
    from nodectl.workloads.usage import Clock, Usage
    from nodectl.workloads.workload import Workload
else:  # on a node these files lie in one folder, without the package
    import checkpoint
    import options
    import ranks
    from feed import Feed
    from settings import Refused
    from training import Training
    from usage import Clock, Usage


# of the losses over time that a summary tells
_POINTS = 200


def train(workload: Workload, settings: Settings, group: ranks.Ranks) -> None:
    """Train from where a checkpoint left off to the last step."""
    training = Training(workload, settings, group)
    resume(training)
    begun_at = training.step
    if training.strategy.notice:
        _tell(group, training.strategy.notice)
    clock = Clock(group.device, training.total_steps - begun_at)
    usage = Usage(group, training.precision)
    wish = Wish(group)
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
        wished = False
        if training.step == 1 or _due(training, settings.log_every):
            note_loss(training, training.strategy.mean_loss(loss), clock)
            wished = wish.is_shared()
            if adapted(training, clock):
                arriving = feed.steps(training.plan())
        if training.is_epoch_over or training.step == training.total_steps:
            note_figures(training)
        if wished or _due(training, settings.checkpoint_every):
            save(training)
    usage.stop()
    _tell(group, json.dumps(summary(training, clock, usage, begun_at)))


class Wish:
    """For a checkpoint out of turn, said by SIGUSR1 to any rank; all ranks ask at the same step, and get one answer."""

    def __init__(self, group: ranks.Ranks) -> None:
        self._group = group
        self._said = False
        signal.signal(signal.SIGUSR1, self._say)

    def _say(self, *_: object) -> None:
        self._said = True

    def is_shared(self) -> bool:
        """Return whether a rank was asked since the last call; every rank must call it."""
        asked, self._said = self._said, False
        return self._group.mean(torch.tensor(float(asked), device=self._group.device)) > 0


def _due(training: Training, every: int) -> bool:
    return training.step % every == 0 or training.step == training.total_steps


def note_loss(training: Training, loss: float, clock: Clock) -> None:
    """Keep the loss of this step for the summary, and print a line."""
    training.losses.setdefault("first", loss)
    training.losses["last"] = loss
    training.curve.append((round(sum(clock.durations_s), 3), loss))
    every = training.settings.log_every
    median_ms, samples_per_s = clock.median_step_ms(every), clock.samples_per_s(every)
    speed = "warming up" if median_ms is None else f"step {median_ms:.1f} ms, {samples_per_s:.1f} samples/s"
    _tell(training.group, f"{_place(training)} loss {loss:.6f} {speed} on {training.data.words}")


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
        _tell(training.group, f"{_place(training)} {summary} on {training.data.words}")


def _place(training: Training) -> str:
    return f"epoch {training.begun_epochs} step {training.step}/{training.total_steps}"


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
    flops = workload.flops_per_sample(settings, strategy.bare)
    again = workload.repeated_flops_per_sample(settings, strategy.bare) if settings.recompute == "full" else 0.0
    hardware = None if again is None or samples_per_s is None else samples_per_s * (flops + again)
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
        **usage.figures(None if samples_per_s is None else samples_per_s * flops, figures["timed_steps"]),
        "hardware_flops_per_s": hardware,
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
    place = f"rank {group.rank}/{group.world_size} on {group.hostnames[group.rank]}"
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

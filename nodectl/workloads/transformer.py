"""The reference training program: a small transformer encoder trained data-parallel, timed, saved and resumed.

Run it under torchrun over many hosts, or by itself. The last line of rank 0 is a JSON summary.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

# before torch loads OpenMP: where ranks share cores, threads that wait by spinning make a step twenty times as long
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch.distributed.elastic.multiprocessing.errors import record

if TYPE_CHECKING:
    from nodectl.workloads import checkpoint, ranks, settings
    from nodectl.workloads.training import Training
else:  # on a node these files lie in one folder, without the package
    import checkpoint
    import ranks
    import settings
    from training import Training

WARMUP_STEPS = 10


class Clock:
    """Durations of the steps of this run, and how many samples all ranks had in each."""

    def __init__(self, device: torch.device, steps: int) -> None:
        self.device = device
        self.warmup = min(WARMUP_STEPS, steps // 2)  # a short run keeps half of its steps
        self.durations_s: list[float] = []
        self.samples: list[int] = []
        self._began_s = 0.0

    def start(self) -> None:
        """Take the time at which a step begins."""
        self._began_s = time.perf_counter()

    def stop(self, samples: int) -> None:
        """It ended; a GPU is waited for, else only its queue would be timed."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.durations_s.append(time.perf_counter() - self._began_s)
        self.samples.append(samples)

    def median_step_ms(self, last: int = 0) -> float | None:
        """Median over this run, or its `last` steps, without warm-up; None where only warm-up was run."""
        timed = self.durations_s[self._from(last) :]
        return round(statistics.median(timed) * 1e3, 3) if timed else None

    def samples_per_s(self, last: int = 0) -> float | None:
        """Samples of all ranks over the time of the same steps."""
        begin = self._from(last)
        total_s = sum(self.durations_s[begin:])
        return round(sum(self.samples[begin:]) / total_s, 1) if total_s else None

    def _from(self, last: int) -> int:
        return max(self.warmup, len(self.durations_s) - last if last else 0)


def train(options: settings.Settings, group: ranks.Ranks) -> None:
    """The whole training, from where a checkpoint left it to its last step."""
    training = Training(options, group)
    resume(training)
    begun_at = training.step
    clock = Clock(group.device, training.total_steps - begun_at)
    wish = Wish(group)
    for indices in training.batches():
        clock.start()
        loss = training.train_step(indices)
        clock.stop(len(indices) * group.world_size)
        wished = False
        if training.step == 1 or _due(training, options.log_every):
            note_loss(training, group.mean(loss), clock)
            wished = wish.is_shared()
        if wished or _due(training, options.checkpoint_every):
            save(training)
    _tell(group, json.dumps(summary(training, clock, begun_at)))


class Wish:
    """For a checkpoint out of turn, said by SIGUSR1 to any rank; all ranks ask at the same step, and get one answer."""

    def __init__(self, group: ranks.Ranks) -> None:
        self._group = group
        self._said = False
        signal.signal(signal.SIGUSR1, self._say)

    def _say(self, *_: object) -> None:
        self._said = True

    def is_shared(self) -> bool:
        """At least one rank was asked since the last call; every rank must call it."""
        said, self._said = self._said, False
        return self._group.mean(torch.tensor(float(said), device=self._group.device)) > 0


def _due(training: Training, every: int) -> bool:
    return training.step % every == 0 or training.step == training.total_steps


def note_loss(training: Training, loss: float, clock: Clock) -> None:
    """Keep the loss of this step for the summary, and print a line."""
    training.losses.setdefault("first", loss)
    training.losses["last"] = loss
    every = training.options.log_every
    median_ms, samples_per_s = clock.median_step_ms(every), clock.samples_per_s(every)
    speed = "warming up" if median_ms is None else f"step {median_ms:.1f} ms, {samples_per_s:.1f} samples/s"
    place = f"epoch {training.begun_epochs} step {training.step}/{training.total_steps}"
    _tell(training.group, f"{place} loss {loss:.6f} {speed}")


def save(training: Training) -> None:
    """Save a checkpoint if a folder was given; every rank must call it, rank 0 writes."""
    folder = training.options.checkpoint_dir
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
    options, group = training.options, training.group
    if options.checkpoint_dir is None:
        return
    data = None
    if group.first and options.resume:
        data = checkpoint.newest(options.checkpoint_dir, print_now)
    elif group.first:
        checkpoint.set_aside(options.checkpoint_dir)
    data = group.broadcast(data)
    if data is None:
        return
    state = checkpoint.load(data)
    training.restore(state)
    for line in training.differences(state["course"]):
        _tell(group, f"not an exact continuation: {line}")


def summary(training: Training, clock: Clock, begun_at: int) -> dict[str, Any]:
    """What the last line says; losses belong to the whole training, times to this run."""
    group, losses = training.group, training.losses
    return {
        "workload": "transformer",
        "first_loss": losses.get("first"),
        "last_loss": losses.get("last"),
        "steps": training.step,
        "resumed_from_step": begun_at,
        "median_step_ms": clock.median_step_ms(),
        "samples_per_s": clock.samples_per_s(),
        "warmup_steps": clock.warmup,
        "world_size": group.world_size,
        "hosts": sorted(set(group.hostnames)),
        "params": training.parameters,
        "batch_per_rank": training.options.batch,
        "precision": training.precision,
        "device": group.device.type,
        "backend": group.backend,
    }


def _tell(group: ranks.Ranks, text: str) -> None:
    if group.first:
        print_now(text)


def print_now(text: str) -> None:
    """Print without waiting for a buffer to fill: somebody follows the log."""
    # one write a line: torchrun runs ranks unbuffered, and print would let another rank in before the line end
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@record  # type: ignore[untyped-decorator]  # torch is not there where mypy runs
def main() -> None:
    """Train by the command line's options, as a rank of torchrun or alone."""
    options = settings.parse()
    group = ranks.join(options.device)
    place = f"rank {group.rank}/{group.world_size} on {group.hostnames[group.rank]}"
    print_now(
        f"{place}: local rank {group.local_rank}, device {group.device}, backend {group.backend}, pid {os.getpid()}"
    )
    try:
        train(options, group)
    finally:
        ranks.leave()
    ranks.end()


if __name__ == "__main__":
    main()

"""One host's ranks of a short data-parallel training: times windows of steps, and says what the model came to.

On standard input: the reference workload's modules as JSON (name: source), run from memory, so that nothing is written
on the host. It ends when one of its ranks fails.
"""

import argparse
import importlib
import socket
import sys
import time
from typing import Any, Dict, Optional, Sequence, Tuple

from ..common import ranks as host_ranks
from ..common.events import say
from ..common.libraries import loaded_nccl
from ..common.machine import available_bytes
from . import gang

# the first steps allocate, and DDP puts its buckets in order after the first
WARMUP_STEPS = 3
ENDLESS = 10**9
CHECK_PRIME = 65521
# of the transformer: 4 of attention, 8 of the feed-forward part
MATRICES, STATES, VALUE_BYTES = 12, 4, 4
MEMORY_PART = 0.5
# what argparse of the workload is given; each is an option of this program too
SHAPE = ("layers", "d-model", "heads", "batch", "seq", "seed")


def check_memory(options: argparse.Namespace, free_bytes: Optional[int]) -> None:
    """Raise MemoryError if a rank would take more than its part of what is free."""
    # a layer's matrices; each value with its gradient and the optimizer's two
    values = MATRICES * options.layers * options.d_model**2
    wanted = STATES * VALUE_BYTES * values
    if free_bytes is not None and wanted > MEMORY_PART * free_bytes:
        raise MemoryError(
            "its training takes %.1f GiB, and %.1f GiB are free; it gets half of that: take a smaller --gradient"
            % (wanted / 2**30, free_bytes / 2**30)
        )


class Run:
    """The training of one rank, step by step."""

    def __init__(self, options: argparse.Namespace, group: Any, torch: Any) -> None:
        names = ("options", "program", "feed", "transformer", "usage")
        command_line, program, feed, transformer, usage = (importlib.import_module(name) for name in names)
        self.options, self.group, self.torch = options, group, torch
        shape = ["--%s=%s" % (name, getattr(options, name.replace("-", "_"))) for name in SHAPE]
        # one batch, every step the same samples: its loss must fall, however few the steps are
        samples = options.batch * options.world_size
        fixed = ["--samples=%d" % samples, "--steps=%d" % ENDLESS, "--dropout=0", "--lr=1e-4", "--no-resume"]
        workload = transformer.Transformer()
        asked = command_line.parse(workload, [*shape, *fixed])
        self.training = program.Training(workload, asked, group)
        _, self.parts = next(feed.Feed(self.training.data, asked, group.device).steps(self.training.plan()))
        self.finite = torch.ones((), dtype=torch.bool, device=group.device)
        self.energy = usage.Energy(group.device)

    def step(self) -> Any:
        """One step; the loss of this rank before it."""
        loss = self.training.train_step(self.parts)
        self.finite &= self.torch.isfinite(loss)
        return loss

    def window(self, steps: int) -> Tuple[float, Any]:
        """Return the seconds of so many steps on this rank, all ranks starting together; the last loss."""
        self.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            loss = self.step()
        self.sync()
        return time.perf_counter() - began, loss

    def slowest(self, seconds: float) -> float:
        """Return the largest of all ranks' values, the same on every rank."""
        if self.group.world_size == 1:
            return seconds
        dist = self.torch.distributed
        value = self.torch.tensor([seconds], device=self.group.device, dtype=self.torch.float64)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return float(value.item())

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.slowest(0.0)
        self.sync()

    def sync(self) -> None:
        """Wait until this rank's GPU has done what it was given."""
        if self.group.device.type == "cuda":
            self.torch.cuda.synchronize(self.group.device)

    def checksum(self) -> str:
        """Return a checksum of every bit of the trained weights, which must be the same on all ranks."""
        whole, weighted = 0, 0
        for parameter in self.training.strategy.bare.parameters():
            bits = parameter.detach().float().flatten().view(self.torch.int32).to(self.torch.int64)
            index = self.torch.arange(bits.numel(), device=bits.device) % CHECK_PRIME + 1
            whole += int(bits.sum().item())
            weighted = 31 * weighted + int((bits % CHECK_PRIME * index).sum().item())
        return "%x-%x" % (whole & (2**64 - 1), weighted & (2**64 - 1))


def measure(run: Run, options: argparse.Namespace) -> None:
    """Warm up, time the windows (with --turns each when it may begin), say what came of it."""
    first = run.group.mean(run.step())
    for _ in range(WARMUP_STEPS - 2):
        run.step()
    once = run.slowest(run.window(1)[0])
    windows, joules = [], []
    for number in range(options.windows):
        if options.turns:
            if run.group.first:  # the others wait for it at the barrier
                gang.wait_for_turn(number)
            once = run.slowest(run.window(1)[0])
        steps = max(1, round(options.seconds / max(once, 1e-9)))
        before = run.energy.joules()
        took, loss = run.window(steps)
        windows.append((steps, round(took, 9)))
        after = run.energy.joules()
        joules.append(None if before is None or after is None else after - before)
    say(
        event="trained",
        rank=run.group.rank,
        steps=[steps for steps, _ in windows],
        seconds=[took for _, took in windows],
        joules=joules,
        first_loss=finite(first),
        last_loss=finite(run.group.mean(loss)),
        finite=bool(run.finite.item()),
        weights=run.checksum(),
        parameters=run.training.strategy.parameters,
        precision=run.training.precision,
    )


def finite(value: float) -> Optional[float]:
    """Return a number for JSON, which has none that are infinite or not a number."""
    return round(value, 6) if abs(value) < float("inf") else None


def join(options: argparse.Namespace) -> Any:
    """Return this rank's place among the others, once all have met."""
    import torch
    import torch.distributed as dist

    ranks = importlib.import_module("ranks")

    rank = options.rank_base + options.local_rank
    device = ranks.pick_device("cuda" if options.backend == "nccl" else "cpu", options.local_rank)
    if options.world_size > 1:
        host_ranks.init_process_group(dist, options, rank)
    backend = options.backend if options.world_size > 1 else "none"
    group = ranks.Ranks(rank, options.world_size, options.local_rank, device, backend, (socket.gethostname(),))
    group.mean(torch.zeros(1, device=device))
    return group


def run_rank(options: argparse.Namespace, texts: Dict[str, str]) -> None:
    """One rank's training, by the workload's modules as given."""
    in_force = gang.set_environment(options)
    sys.meta_path.insert(0, gang.Sources(texts))
    import torch

    group = join(options)
    on_gpu = group.device.type == "cuda"
    check_memory(options, torch.cuda.mem_get_info(group.device)[0] if on_gpu else available_bytes())
    say(
        event="ready",
        rank=group.rank,
        torch=torch.__version__,
        nccl=loaded_nccl() if on_gpu else None,
        device=torch.cuda.get_device_name(group.device) if on_gpu else "cpu",
        threads=torch.get_num_threads(),
        nccl_env=in_force if on_gpu else {},
    )
    measure(Run(options, group, torch), options)
    if group.world_size > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser()
    gang.add_arguments(parser)
    for name in ("windows", *SHAPE):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--turns", action="store_true")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Train, and end at once."""
    options = parse(argv)
    if options.turns:
        gang.expect_turns()
    return gang.main(options, run_rank)

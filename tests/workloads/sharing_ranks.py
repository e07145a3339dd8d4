"""Ranks that share a small language model in several ways, one after another; the first prints what came of it as JSON.

Run by a Python that has torch, with nodectl/workloads on its path: the number of ranks, a file to meet at, and the
ways as JSON: names to options. All ranks but the first are forks: torch is imported once.
"""

import io
import json
import os
import socket
import sys
from typing import Any

# on a node these files lie in one folder, without the package
import options  # type: ignore[import-not-found]
import sharded  # type: ignore[import-not-found]
import torch
import torch.distributed as dist
from llm import LanguageModel  # type: ignore[import-not-found]
from program import Training  # type: ignore[import-not-found]
from ranks import Ranks  # type: ignore[import-not-found]

# in an epoch two whole steps of 8 samples, and 4 more
TINY = (
    *("--layers=4", "--hidden=16", "--intermediate=32", "--heads=4", "--seq=8", "--samples=20", "--epochs=2"),
    *("--lr=0.01", "--weight-decay=0.1", "--clip=0.5", "--device=cpu", "--precision=fp32"),
)
GLOBAL_BATCH = 8
WORKLOAD = LanguageModel()


def begun(group: Ranks, *own: str) -> Training:
    return Training(WORKLOAD, options.parse(WORKLOAD, [*TINY, *own]), group)


def steps(training: Training, number: int) -> list[float]:
    """The losses of the next steps."""
    plan = training.plan()
    losses = []
    for _ in range(number):
        parts = [training.data.batch(indices, epoch) for epoch, indices in next(plan)]
        losses.append(training.strategy.mean_loss(training.train_step(parts)))
    return losses


def handed_on(group: Ranks, state: dict[str, Any]) -> Any:
    """Rank 0's state, as every rank reads it from a file; a new one at each call."""
    file = io.BytesIO()
    torch.save(state, file)
    data = group.broadcast(file.getvalue() if group.first else None)
    return lambda: torch.load(io.BytesIO(data or b""), weights_only=True)


def course(group: Ranks, own: list[str]) -> dict[str, Any]:
    """Losses of 4 steps, of the last 2 after a resume, and of the same on one rank, also from the same checkpoint."""
    training = begun(group, *own)
    first = steps(training, 2)
    read = handed_on(group, training.state())
    last = steps(training, 2)
    again = begun(group, *own)
    again.restore(read())
    told = {"losses": first + last, "resumed": steps(again, 2) == last, **shapes(training)}
    if group.first:
        one = begun(single(), *whole(own))
        one.restore(read())
        told["params"] = [training.strategy.parameters, one.strategy.parameters]
        told["alone"] = steps(one, 2)
        told["single"] = steps(begun(single(), *whole(own)), 4)
    return told


def single() -> Ranks:
    return Ranks(0, 1, 0, torch.device("cpu"), "none", ("here",))


def whole(own: list[str]) -> list[str]:
    """The options for one rank with all samples of a step."""
    shape = ("--mlp", "--precision")
    return [f"--batch={GLOBAL_BATCH}", *(each for each in own if each.startswith(shape))]


def shapes(training: Training) -> dict[str, Any]:
    """What this rank has of the model."""
    query = next(each for name, each in training.strategy.bare.named_parameters() if name.endswith("query.weight"))
    is_shared = hasattr(query, "to_local")
    return {
        "precision": training.precision,
        "data": [training.strategy.data_rank, training.strategy.data_size],
        "query": list((query.to_local() if is_shared else query).shape),
        "moments": [list(sharded.settled(each)[0].shape) for each in moments(training)[:1]],
        "placements": [str(each) for each in query.placements] if is_shared else [],
        "layers": len(WORKLOAD.blocks(training.strategy.bare)),
        "notice": training.strategy.notice,
    }


def moments(training: Training) -> list[torch.Tensor]:
    """AdamW's first moments of the matrices of queries."""
    strategy = training.strategy
    named = [each for name, each in strategy.bare.named_parameters() if name.endswith("query.weight")]
    return [strategy.optimizer.state[each]["exp_avg"] for each in named]


def scaled(group: Ranks) -> dict[str, Any]:
    """What becomes of a step in which the last rank's gradient is not finite, and of the next."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = sharded.AgreedScaler(True, group.device, lambda gradient: gradient)
    told = []
    for bad in (True, False):
        optimizer.zero_grad()
        scaler.scale(weight.sum()).backward()
        if bad and group.rank == group.world_size - 1:
            weight.grad[0] = float("inf")
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        told.append([*weight.tolist(), scaler.state_dict()["scale"]])
    return {"weights": told}


def main() -> None:
    world_size, meeting, ways = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    torch.set_num_threads(1)
    rank = 0
    children: list[int] = []
    for number in range(1, world_size):
        child = os.fork()
        if child == 0:
            rank, children = number, []
            break
        children.append(child)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", world_size=world_size, rank=rank)
    group = Ranks(rank, world_size, rank, torch.device("cpu"), "gloo", (socket.gethostname(),) * world_size)
    told: dict[str, Any] = {name: course(group, own) for name, own in ways.items()}
    told["scaled"] = scaled(group)
    if rank == 0:
        os.write(1, json.dumps(told).encode() + b"\n")
        for child in children:
            os.waitpid(child, 0)
    os._exit(0)


main()

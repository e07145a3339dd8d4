"""python -m tinylm.train: its modules import each other by the package's name, its settings lie in the package."""

import argparse
import json
import os
from importlib import resources

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tinylm.data import batch


def main() -> None:
    """Plain DDP; rank 0 says the mean loss of all."""
    settings = json.loads(resources.files("tinylm").joinpath("settings.json").read_text())
    parser = argparse.ArgumentParser(prog="tinylm.train")
    parser.add_argument("--steps", type=int, default=settings["steps"])
    steps = parser.parse_args().steps
    device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device != "cpu" else "gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(settings["width"], 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    for step in range(1, steps + 1):
        inputs, wanted = (part.to(device) for part in batch(dist.get_rank(), step, settings["width"]))
        loss = nn.functional.mse_loss(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"step {step} loss {mean.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Train on a file of tokens, with plain DDP: torchrun train.py [config/FILE.py] [--name=value]..."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from model import Decoder
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

# settings, which a file below config/ and the command line may change
dataset = "data/tiny"  # a folder with train.bin
out_dir = "out"
vocabulary = 256
layers = 6
width = 384
heads = 4
block = 128
batch = 16  # of a rank
lr = 1e-3
steps = 200
log_every = 5
exec(Path("configurator.py").read_text())  # noqa: S102

rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
if device != "cpu":
    torch.cuda.set_device(device)
if world > 1:
    dist.init_process_group("nccl" if device != "cpu" else "gloo")
torch.manual_seed(0)  # the same weights on each rank
size = (Path(dataset) / "train.bin").stat().st_size // 2
tokens = torch.from_file(str(Path(dataset) / "train.bin"), shared=False, size=size, dtype=torch.uint16)
raw = Decoder(vocabulary, block, layers, width, heads).to(device)
model = DistributedDataParallel(raw) if world > 1 else raw
optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
chance = torch.Generator().manual_seed(1 + rank)  # other data on each rank
for step in range(1, steps + 1):
    starts = torch.randint(size - block - 1, (batch,), generator=chance).tolist()
    rows = torch.stack([tokens[at : at + block + 1] for at in starts]).long().to(device)
    loss = functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and (step == 1 or step % log_every == 0):
        print(f"step {step} loss {loss.item():.4f}", flush=True)
if rank == 0:
    Path(out_dir).mkdir(parents=True, exist_ok=True)
    torch.save(raw.state_dict(), Path(out_dir) / "model.pt")
    print(f"saved {Path(out_dir).resolve()}/model.pt", flush=True)
if world > 1:
    dist.destroy_process_group()

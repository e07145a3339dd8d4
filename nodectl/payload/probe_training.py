"""One host's ranks of a short data-parallel training: times windows of steps, and says what the model came to.

On standard input: the reference workload's modules as JSON (name: source), run from memory, so that nothing is written
on the host. JSON lines; Python 3.8, the standard library and torch. It ends when one of its ranks fails.
"""

import argparse
import ctypes
import datetime
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload import turns
    from nodectl.payload.retrievalbench import table as table_of
else:  # on a node this folder is sys.path[0], and there is no nodectl
    import turns
    from retrievalbench import table as table_of

# the first steps allocate, and DDP puts its buckets in order after the first
WARMUP_STEPS = 3
ENDLESS = 10**9
CHECK_PRIME = 65521
PEER_WORDS = ("peer", "Connection", "connection", "timed out", "Timed out", "timeout", "ncclRemoteError")
# of the transformer: 4 of attention, 8 of the feed-forward part
MATRICES, STATES, VALUE_BYTES = 12, 4, 4
MEMORY_PART = 0.5
# what argparse of the workload is given; each is an option of this program too
SHAPE = ("layers", "d-model", "heads", "batch", "seq", "seed")


def say(**event: Any) -> None:
    # one write a line: lines of several ranks share the pipe
    os.write(1, (json.dumps(event) + "\n").encode())


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from their texts."""

    def __init__(self, texts: Dict[str, str]) -> None:
        self.texts = texts

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        return importlib.util.spec_from_loader(fullname, self) if fullname in self.texts else None

    def get_source(self, fullname: str) -> str:
        return self.texts[fullname]


def nccl_settings() -> Dict[str, str]:
    """The values in force, read as NCCL reads them: environment, the user's file, the system's; the first counts."""
    values = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    home = os.environ.get("HOME", "/nonexistent") + "/.nccl.conf"
    for path in (os.environ.get("NCCL_CONF_FILE", home), "/etc/nccl.conf"):
        try:
            lines = Path(path).read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                values.setdefault(name, value)
    return values


def set_environment(options: argparse.Namespace) -> Dict[str, str]:
    """As nodectl-launch does before it starts ranks; the NCCL values in force."""
    values = nccl_settings()
    if options.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", options.interface)
        # '=' asks for this very name; what was asked for goes before what the files say
        if options.interface_asked or "NCCL_SOCKET_IFNAME" not in values:
            os.environ["NCCL_SOCKET_IFNAME"] = values["NCCL_SOCKET_IFNAME"] = "=" + options.interface
    if options.interface_asked:
        os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    threads = max(1, len(os.sched_getaffinity(0)) // options.nproc)
    if Path("/etc/nodectl-lab").exists():  # its hosts share their cores
        threads = 1
    # as the workload itself does: threads that wait by spinning take the cores from other ranks
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    return values


def check_memory(options: argparse.Namespace, free_bytes: Optional[int]) -> None:
    """MemoryError where a rank would take more than its part of what is free."""
    # a layer's matrices; each value with its gradient and the optimizer's two
    values = MATRICES * options.layers * options.d_model**2
    wanted = STATES * VALUE_BYTES * values
    if free_bytes is not None and wanted > MEMORY_PART * free_bytes:
        raise MemoryError(
            "its training takes %.1f GiB, and %.1f GiB are free; it gets half of that: take a smaller --gradient"
            % (wanted / 2**30, free_bytes / 2**30)
        )


def loaded_nccl() -> Optional[str]:
    """The version of the library that is loaded; torch's own word may be that of its build."""
    with Path("/proc/self/maps").open() as maps:
        paths = sorted({line.split()[-1] for line in maps if "libnccl.so" in line})
    for path in paths:
        number = ctypes.c_int()
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) == 0:
            scale = 10000 if number.value >= 10000 else 1000
            return "%d.%d.%d" % (number.value // scale, number.value % scale // 100, number.value % 100)
    return None


def spawn_ranks(options: argparse.Namespace, given: bytes) -> int:
    """A process a GPU; the first that fails ends the others."""
    children = []
    for index in range(options.nproc):
        argv = [sys.executable, *sys.argv, "--local-rank", str(index)]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE)
        children.append(child)
        if child.stdin:
            child.stdin.write(given)
            child.stdin.close()

    def stop(*_: Any) -> None:
        for child in children:
            child.kill()

    signal.signal(signal.SIGTERM, stop)
    while True:
        states = [child.poll() for child in children]
        failed = [state for state in states if state]
        if failed or None not in states:
            stop()
            return abs(failed[0]) if failed else 0
        time.sleep(0.05)


class Run:
    """This rank's training, step by step."""

    def __init__(self, options: argparse.Namespace, group: Any, torch: Any) -> None:
        settings, training = (importlib.import_module(name) for name in ("settings", "training"))
        self.options, self.group, self.torch = options, group, torch
        shape = ["--%s=%s" % (name, getattr(options, name.replace("-", "_"))) for name in SHAPE]
        # one batch, every step the same samples: its loss must fall, however few the steps are
        samples = options.batch * options.world_size
        fixed = ["--samples=%d" % samples, "--steps=%d" % ENDLESS, "--dropout=0", "--lr=1e-4", "--no-resume"]
        self.training = training.Training(settings.parse([*shape, *fixed]), group)
        self.batches = self.training.batches()
        self.finite = torch.ones((), dtype=torch.bool, device=group.device)

    def step(self) -> Any:
        """One step; the loss of this rank before it."""
        loss = self.training.train_step(next(self.batches)).detach()
        self.finite &= self.torch.isfinite(loss)
        return loss

    def window(self, steps: int) -> Tuple[float, Any]:
        """Seconds of so many steps on this rank, all ranks starting together; the last loss."""
        self.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            loss = self.step()
        self.sync()
        return time.perf_counter() - began, loss

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' values, the same on every rank."""
        if self.group.world_size == 1:
            return seconds
        dist = self.torch.distributed
        value = self.torch.tensor([seconds], device=self.group.device, dtype=self.torch.float64)
        dist.all_reduce(value, dist.ReduceOp.MAX)
        return float(value.item())

    def barrier(self) -> None:
        self.slowest(0.0)
        self.sync()

    def sync(self) -> None:
        if self.group.device.type == "cuda":
            self.torch.cuda.synchronize(self.group.device)

    def checksum(self) -> str:
        """Of every bit of the trained weights, the same on all ranks or something went wrong on the way."""
        whole, weighted = 0, 0
        for parameter in self.training.bare_model.parameters():
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
    windows = []
    for number in range(options.windows):
        if options.turns:
            if run.group.first:  # the others wait for it at the barrier
                turns.wait(say, number)
            once = run.slowest(run.window(1)[0])
        steps = max(1, round(options.seconds / max(once, 1e-9)))
        took, loss = run.window(steps)
        windows.append((steps, round(took, 9)))
    say(
        event="trained",
        rank=run.group.rank,
        steps=[steps for steps, _ in windows],
        seconds=[took for _, took in windows],
        first_loss=finite(first),
        last_loss=finite(run.group.mean(loss)),
        finite=bool(run.finite.item()),
        weights=run.checksum(),
        parameters=run.training.parameters,
        precision=run.training.precision,
    )


def finite(value: float) -> Optional[float]:
    """For JSON, which has no numbers that are none."""
    return round(value, 6) if abs(value) < float("inf") else None


def join(options: argparse.Namespace) -> Any:
    """This rank among the others."""
    import torch
    import torch.distributed as dist

    ranks = importlib.import_module("ranks")

    rank = options.rank_base + options.local_rank
    device = ranks.pick_device("cuda" if options.backend == "nccl" else "cpu", options.local_rank)
    if options.world_size > 1:
        address = "[%s]" % options.master_addr if ":" in options.master_addr else options.master_addr
        dist.init_process_group(
            options.backend,
            init_method="tcp://%s:%d" % (address, options.master_port),
            rank=rank,
            world_size=options.world_size,
            timeout=datetime.timedelta(seconds=options.timeout),
        )
    backend = options.backend if options.world_size > 1 else "none"
    group = ranks.Ranks(rank, options.world_size, options.local_rank, device, backend, (socket.gethostname(),))
    group.mean(torch.zeros(1, device=device))
    return group


def run_rank(options: argparse.Namespace, texts: Dict[str, str]) -> None:
    in_force = set_environment(options)
    sys.meta_path.insert(0, Sources(texts))
    import torch

    group = join(options)
    on_gpu = group.device.type == "cuda"
    check_memory(options, torch.cuda.mem_get_info(group.device)[0] if on_gpu else table_of.available_bytes())
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


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    whole = ("rank-base", "world-size", "nproc", "master-port", "windows", *SHAPE)
    for name in whole:
        parser.add_argument("--" + name, type=int, required=True)
    for name in ("master-addr", "backend"):
        parser.add_argument("--" + name, required=True)
    for name in ("seconds", "timeout"):
        parser.add_argument("--" + name, type=float, required=True)
    parser.add_argument("--interface", default="")
    parser.add_argument("--interface-asked", action="store_true")
    parser.add_argument("--turns", action="store_true")
    parser.add_argument("--local-rank", type=int, default=-1)
    return parser.parse_args(argv)


def main(argv: Optional[List[str]] = None) -> int:
    options = parse(argv)
    if options.turns:
        turns.expect()
    given = sys.stdin.buffer.read()
    if options.local_rank < 0:
        say(event="started", pid=os.getpid())
        if options.nproc > 1:
            return spawn_ranks(options, given)
        options.local_rank = 0
    try:
        run_rank(options, json.loads(given))
    except (Exception, SystemExit) as error:
        text = first_line(error)
        say(event="error", text=text, peer=any(word in text for word in PEER_WORDS))
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    # a thread of torch that wakes up while Python winds down aborts the process now and then
    os._exit(status)

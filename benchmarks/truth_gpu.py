"""What a node's GPUs do beside computing: copies with the host and with each other, collectives, and training."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_WORKLOADS = Path(__file__).resolve().parent.parent / "nodectl" / "workloads"
_LOOP = Path(__file__).with_name("llm_loop.py")
_TRAINING_S = 240
_STEPS = 40
_ALL_REDUCE_BYTES = (8 << 10, 8 << 20, 256 << 20)
# a GPU of 24 GB holds the smaller one with its optimizer; processors get one that shows only that it works
_LARGE_BYTES = 60 << 30
_SHAPES = {
    "large": {"layers": 16, "hidden": 2048, "intermediate": 5504, "heads": 16, "vocabulary": 32000, "seq": 2048},
    "small": {"layers": 8, "hidden": 1536, "intermediate": 4096, "heads": 12, "vocabulary": 32000, "seq": 1024},
    "tiny": {"layers": 2, "hidden": 64, "intermediate": 172, "heads": 2, "vocabulary": 512, "seq": 64},
}
_BATCH = 4


class Row(NamedTuple):
    """A line of the table; `loop` is None if nothing was measured beside it."""

    name: str
    value: float
    unit: str
    loop: float | None = None
    more: str = ""


# arguments of the payload's program → its events; raises what the caller can show
Ask = Callable[..., list[dict[str, Any]]]


def copies(ask: Ask, seconds: float, gpus: int) -> Iterable[Row]:
    """Medians of h2d a place and direction, and of p2p a way, the slowest GPU or pair."""
    wishes = ("measure", f"--seconds={seconds}", "--runs=3", "--deadline=200")
    yield from _slowest("h2d", ask("probes.device.h2d", *wishes), _of_host_copy)
    if gpus > 1:
        yield from _slowest("p2p", ask("probes.device.p2p", *wishes), _of_peer_copy)


def _of_host_copy(event: dict[str, Any]) -> str:
    return f"{event['place']}, {'to the GPU' if event['to_gpu'] else 'from the GPU'}"


def _of_peer_copy(event: dict[str, Any]) -> str:
    return f"{event['way']}, {'both directions' if event['bidirectional'] else 'one direction'}"


def _slowest(name: str, events: Iterable[dict[str, Any]], kind_of: Callable[[dict[str, Any]], str]) -> Iterable[Row]:
    kinds: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event["event"] == "measured":
            if event["wrong"]:
                raise RuntimeError(f"{name}: {event['wrong']} wrong bytes")
            kinds[kind_of(event)].append(statistics.median(event["rates"]))
    for kind, rates in kinds.items():
        yield Row(f"{name} ({kind})", min(rates), "GB/s")


def collectives(
    ask: Ask, gpus: int, backend: str = "nccl", sizes_bytes: Sequence[int] = _ALL_REDUCE_BYTES
) -> Iterable[Row]:
    """Bus bandwidth of an all-reduce over the node's GPUs, by the slowest rank."""
    wishes: dict[str, object] = {
        "rank-base": 0,
        "world-size": gpus,
        "nproc": gpus,
        "master-addr": "127.0.0.1",
        "master-port": _free_port(),
        "backend": backend,
        "timeout": 60,
        "collectives": "all_reduce",
        "repetitions": 3,
        "seconds": 0.5,
        "sizes": ",".join(map(str, sizes_bytes)),
    }
    if backend == "nccl":
        wishes["devices"] = ",".join(map(str, range(gpus)))
    events = ask("probes.nccl.probe", *(f"--{name}={value}" for name, value in wishes.items()))
    sizes: dict[int, list[list[float]]] = defaultdict(list)
    for event in events:
        if event["event"] == "times":
            if event["wrong"]:
                raise RuntimeError(f"all_reduce of {event['size_bytes']} bytes: {event['wrong']} wrong elements")
            sizes[event["size_bytes"]].append(event["seconds"])
    for size, ranks in sizes.items():
        took_s = statistics.median(map(max, zip(*ranks, strict=True)))
        yield Row(f"nccl (all_reduce, {size >> 10} KiB)", 2 * (gpus - 1) / gpus * size / took_s / 1e9, "GB/s busbw")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def training(device: str, gpus: int, memory_bytes: int) -> Iterable[Row]:
    """Return the `llm` workload in bf16 beside a loop written by hand, of the same sizes, on all GPUs."""
    shape = _SHAPES["tiny" if device == "cpu" else "large" if memory_bytes > _LARGE_BYTES else "small"]
    words = [f"--{name}={value}" for name, value in {**shape, "batch": _BATCH, "steps": _STEPS}.items()]
    own = ["--fused", f"--positions={shape['seq']}", f"--samples={_BATCH * max(1, gpus) * _STEPS}", "--log-every=20"]
    precision = "bf16" if device == "cuda" else "fp32"
    ours = _run(gpus, _WORKLOADS / "llm.py", [*words, *own, f"--device={device}", f"--precision={precision}"])
    loop = _run(gpus, _LOOP, [*words, f"--device={device}"])
    mfu = f"MFU {ours['mfu']:.1%}" if ours["mfu"] is not None else "no MFU: the peak is not known"
    yield Row("llm", ours["samples_per_s"], "samples/s", loop["samples_per_s"], f"{ours['params'] / 1e6:.3g} M, {mfu}")


def _run(gpus: int, program: Path, words: Sequence[str]) -> dict[str, Any]:
    """Return the summary that ends a training; RuntimeError if it fails."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(gpus), "--master-addr", "127.0.0.1"]
    many = [*launcher, "--master-port", str(_free_port())] if gpus > 1 else []
    done = subprocess.run(
        [sys.executable, *many, str(program), *words],
        capture_output=True,
        text=True,
        timeout=_TRAINING_S,
        check=False,
        # for both: threads that wait by spinning take the cores of those that compute
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"{program.name} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer

"""All that nodectl does on a node's GPUs, in one call: its probes, NCCL, and a training, against loops written by hand.

    python3 benchmarks/gpu_truth.py [--rounds 3] [--precisions bf16,fp16,tf32,fp8] [--only gemm,hbm,copies,nccl,llm]

It runs with any Python that has torch, and needs nothing else of nodectl. The probes run as on a node, a process each
time. gemm and hbm measure all GPUs at once and are held, on the first GPU and turn by turn, against `torch.matmul(a,
b, out=out)`, at the best of a few shapes tuned here, and `b.copy_(a)` on arrays of 4 GiB, both timed by CUDA events.
`llm` is held against benchmarks/llm_loop.py, a training of the same sizes on all GPUs. h2d, p2p and NCCL's all-reduce
over the node's GPUs stand for themselves. The last line is one JSON object: `ratios` are ours over the loop's, the
medians of all rounds, so more is better; below 0.95 the exit status is 1, and so it is where a part failed, which does
not end the others. Before it stands the table for docs/evidence.md. What a device or a torch lacks is said and left
out. Without a GPU nothing is measured, and the exit status is 0. `--device cpu` compares products and a small training
on processors.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import truth_gpu
from truth_gpu import Row

_PAYLOAD = Path(__file__).resolve().parent.parent / "nodectl" / "payload"
_RUN = _PAYLOAD / "run.py"
_LEAST = 0.95
_COPY_BYTES = 4 << 30
_TUNE_S = 0.1
# of a probe's start, search and check
_DEADLINE_S = 300
_RUNS = 3
_SHAPES = {
    "cuda": ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 16384), (16384, 16384, 8192), (2048, 2048, 13312)),
    "cpu": ((512, 512, 512), (1024, 1024, 1024)),
}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32"}

# a name, the probe, the loop
_Case = tuple[str, Callable[[], float], Callable[[], float]]


def _texts(output: str | bytes) -> list[bytes]:
    """Return the texts of the frames that a program printed, read by the probes' own code, which is not installed."""
    sys.path.insert(0, str(_PAYLOAD.parent.parent))
    try:
        found: list[bytes] = import_module("nodectl.payload.common.frames").texts(output)
    finally:
        del sys.path[0]
    return found


def main() -> int:
    """Measure, print the figures, judge."""
    options = _options()
    document: dict[str, object] = {"name": "gpu_truth", "ratios": {}}
    # as the probes do: all GPUs, in the order in which nvidia-smi counts, so that both measure the same one
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    try:
        import torch
    except ImportError:
        return _without(document, f"{sys.executable} has no torch")
    if options.device == "cuda" and not torch.cuda.is_available():
        return _without(document, f"torch {torch.__version__} sees no GPU")
    where = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    document |= {"torch": str(torch.__version__), "device": _name(torch, where)}
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for name in options.only:
        try:
            rows += _PARTS[name](torch, where, options)
        except _LackingError as error:
            print(f"{name}: {error}", flush=True)
        except (RuntimeError, OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            failed[name] = str(error)
            print(f"{name}: FAILED: {error}", flush=True)
        _give_back(torch, where)
    ratios = {row.name: round(row.value / row.loop, 4) for row in rows if row.loop}
    document |= {"ratios": ratios, "gpus": _count(torch, where), "failed": failed}
    document["rows"] = [{"name": row.name, "value": round(row.value, 3), "unit": row.unit} for row in rows]
    _print_table(document, rows)
    print(json.dumps(document))
    return int(bool(failed) or any(ratio < _LEAST for ratio in ratios.values()))


def _count(torch: Any, where: Any) -> int:
    return int(torch.cuda.device_count()) if where.type == "cuda" else 0


def _compared(
    cases: Iterator[tuple[str, Callable[[], float], Callable[[], float]]], rounds: int, unit: str
) -> list[Row]:
    """Return the medians of probe and loop, which take turns."""
    rows = []
    for name, probe, loop in cases:
        pairs: list[tuple[float, float]] = []
        try:
            for number in range(rounds):
                pairs.append((probe(), loop()))
                print(
                    f"round {number + 1}  {name:<10}  probe {pairs[-1][0]:9.2f}  loop {pairs[-1][1]:9.2f}", flush=True
                )
        except _LackingError as error:
            print(f"{name}: {error}", flush=True)
            continue
        ours, loops = (statistics.median(each) for each in zip(*pairs, strict=True))
        rows.append(Row(name, ours, unit, loops))
    return rows


def _gemm(torch: Any, where: Any, options: argparse.Namespace) -> list[Row]:
    return _compared(_products(torch, where, options), options.rounds, "TFLOP/s")


def _hbm(torch: Any, where: Any, options: argparse.Namespace) -> list[Row]:
    _need_gpus(where)

    def loop() -> float:
        rate = _copies(torch, where, options.seconds)
        _give_back(torch, where)
        return rate

    return _compared(iter([("hbm", _probed("hbm", options), loop)]), options.rounds, "GB/s")


def _between(torch: Any, where: Any, options: argparse.Namespace) -> list[Row]:
    _need_gpus(where)
    return list(truth_gpu.copies(_said, options.seconds, _count(torch, where)))


def _collectives(torch: Any, where: Any, options: argparse.Namespace) -> list[Row]:
    if _count(torch, where) < 2:
        raise _LackingError("a collective needs two GPUs")
    return list(truth_gpu.collectives(_said, _count(torch, where)))


def _training(torch: Any, where: Any, options: argparse.Namespace) -> list[Row]:
    memory = int(torch.cuda.mem_get_info(where)[1]) if where.type == "cuda" else 0
    return list(truth_gpu.training(where.type, _count(torch, where), memory))


_PARTS: dict[str, Callable[[Any, Any, argparse.Namespace], list[Row]]] = {
    "gemm": _gemm,
    "hbm": _hbm,
    "copies": _between,
    "nccl": _collectives,
    "llm": _training,
}


def _need_gpus(where: Any) -> None:
    if where.type != "cuda":
        raise _LackingError("a processor has none of it")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run")
    parser.add_argument(
        "--precisions", help="default: bf16,fp16,tf32,fp8 as far as the GPU has them; fp32 on processors"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", help=f"parts by comma; default: all of {','.join(_PARTS)}")
    options = parser.parse_args()
    options.only = options.only.split(",") if options.only else list(_PARTS)
    unknown = [name for name in options.only if name not in _PARTS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(_PARTS)}")
    return options


class _LackingError(Exception):
    """The device, or its torch, has no such product."""


def _give_back(torch: Any, where: Any) -> None:
    """Free the memory that torch keeps, for the probe is another process."""
    if where.type == "cuda":
        torch.cuda.empty_cache()


def _print_table(document: Mapping[str, object], rows: Sequence[Row]) -> None:
    gpus = f"{document['gpus']} x " if document["gpus"] else ""
    print(f"\n{gpus}{document['device']}, torch {document['torch']}:\n")
    print("| | measured | by hand | ratio | |\n|---|---|---|---|---|")
    for row in rows:
        beside = f"{row.loop:.4g} | {row.value / row.loop:.3f}" if row.loop else "|"
        print(f"| `{row.name}` | {row.value:.4g} {row.unit} | {beside} | {row.more} |")
    print()


def _without(document: dict[str, object], reason: str) -> int:
    print(f"nothing measured: {reason}")
    print(json.dumps({**document, "skipped": reason}))
    return 0


def _name(torch: Any, where: Any) -> str:
    return str(torch.cuda.get_device_name(where)) if where.type == "cuda" else "cpu"


def _products(torch: Any, where: Any, options: argparse.Namespace) -> Iterator[_Case]:
    """Yield the products that this device may have."""
    wanted = options.precisions or ("bf16,fp16,tf32,fp8" if where.type == "cuda" else "fp32")
    for precision in wanted.split(","):
        yield (
            f"gemm_{precision}",
            _probed("gemm", options, f"--precisions={precision}"),
            _Products(torch, where, precision, options.seconds),
        )


def _probed(name: str, options: argparse.Namespace, *args: str) -> Callable[[], float]:
    """Return the median of the probe's runs on the first GPU."""

    def run() -> float:
        (measured,) = _events(name, "measured", options, *args)
        if measured["wrong"]:
            raise RuntimeError(f"probe {name}: {measured['wrong']} wrong elements")
        return float(statistics.median(measured["rates"]))

    return run


def _events(name: str, kind: str, options: argparse.Namespace, *args: str) -> list[dict[str, Any]]:
    """Return the probe's events of the first GPU, or of a processor; _LackingError where it lacks what is measured."""
    wishes = [f"--seconds={options.seconds}", f"--runs={_RUNS}", f"--deadline={_DEADLINE_S}"]
    said = _said(f"probes.device.{name}", "measure", *wishes, *args)
    own = [event for event in said if event.get("gpu") in (None, 0)]
    lacking = [event["text"] for event in own if event["event"] == "lacks"]
    found = [event for event in own if event["event"] == kind]
    if lacking:
        raise _LackingError(lacking[0])
    if not found:
        raise RuntimeError(f"probe {name} said nothing: {said}")
    return found[:1]


def _said(module: str, *words: str) -> list[dict[str, Any]]:
    """All events of a program of the payload; RuntimeError with its words if it fails."""
    done = subprocess.run(
        [sys.executable, str(_RUN), module, *words],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S + 100,
        check=False,
    )
    said: list[dict[str, Any]] = [json.loads(text) for text in _texts(done.stdout)]
    if done.returncode:
        raise RuntimeError(f"{module} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return said


class _Products:
    """A loop of products at the shape that is fastest here, its operands and results allocated before."""

    def __init__(self, torch: Any, where: Any, precision: str, seconds: float) -> None:
        self._torch, self._where, self._precision, self._seconds = torch, where, precision, seconds

    def __call__(self) -> float:
        self._torch.set_float32_matmul_precision("high" if self._precision == "tf32" else "highest")
        shapes = [(shape, turned) for shape in _SHAPES[self._where.type] for turned in (False, True)]
        shapes = [each for each in shapes if each[1] or self._precision != "fp8"]
        shape, turned = max(shapes, key=lambda each: self._rate(each[0], each[1], _TUNE_S))
        return self._rate(shape, turned, self._seconds)

    def _rate(self, shape: tuple[int, int, int], turned: bool, seconds: float) -> float:
        """TFLOP/s."""
        torch, (rows, columns, depth) = self._torch, shape
        a = torch.randn(rows, depth, device=self._where)
        b = (
            torch.randn(columns, depth, device=self._where).t()
            if turned
            else torch.randn(depth, columns, device=self._where)
        )
        if self._precision == "fp8":
            one = torch.ones((), device=self._where)
            a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
            words = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
            try:
                torch._scaled_mm(a, b, **words, use_fast_accum=True)
                words["use_fast_accum"] = True
            except TypeError:  # torch 2.1 has no such option
                pass

            def product() -> None:
                torch._scaled_mm(a, b, **words)
        else:
            dtype = getattr(torch, _DTYPES[self._precision])
            a, b = a.to(dtype), b.to(dtype)
            out = torch.empty(rows, columns, dtype=dtype, device=self._where)

            def product() -> None:
                torch.matmul(a, b, out=out)

        return 2 * rows * columns * depth / _each_s(torch, self._where, product, seconds) / 1e12


def _copies(torch: Any, where: Any, seconds: float) -> float:
    """GB/s, read and written."""
    size = min(_COPY_BYTES, int(torch.cuda.mem_get_info(where)[0]) // 4)
    a = torch.randint(0, 255, (size,), dtype=torch.uint8, device=where)
    b = torch.empty_like(a)
    return 2 * size / _each_s(torch, where, lambda: b.copy_(a), seconds) / 1e9


def _each_s(torch: Any, where: Any, work: Callable[[], object], seconds: float) -> float:
    """Seconds of one, over as many as fill the time."""
    for _ in range(3):
        work()
    count = max(1, round(seconds / _timed(torch, where, work, 3)))
    return _timed(torch, where, work, count)


def _timed(torch: Any, where: Any, work: Callable[[], object], count: int) -> float:
    if where.type == "cpu":
        began = time.perf_counter()
        for _ in range(count):
            work()
        return (time.perf_counter() - began) / count
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / count


if __name__ == "__main__":
    sys.exit(main())

"""The gemm and hbm probes against loops written by hand, on a GPU of this machine: turn by turn, in one call.

    python3 benchmarks/gpu_truth.py [--rounds 3] [--precisions bf16,fp16,tf32,fp8]

It runs with any Python that has torch, and needs nothing else of nodectl. The probes run as on a node, a process each
time; the loops are `torch.matmul(a, b, out=out)`, at the best of a few shapes tuned here, and `b.copy_(a)` on arrays of
4 GiB, both timed by CUDA events. The last line is one JSON object: `ratios` are the probe's figure over the loop's, the
medians of all rounds, so more is better; below 0.95 the exit status is 1. Without a GPU there are none, and it is 0.
`--device cpu` compares products on processors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_RUN = Path(__file__).resolve().parent.parent / "nodectl" / "payload" / "run.py"
_LEAST = 0.95
_COPY_BYTES = 4 << 30
_TUNE_S = 0.1
_SHAPES = {
    "cuda": ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 8192, 16384), (16384, 16384, 8192), (2048, 2048, 13312)),
    "cpu": ((512, 512, 512), (1024, 1024, 1024)),
}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32"}


def main() -> int:
    """Measure, print the figures, judge."""
    options = _options()
    document: dict[str, object] = {"name": "gpu_truth", "ratios": {}}
    try:
        import torch
    except ImportError:
        return _without(document, f"{sys.executable} has no torch")
    if options.device == "cuda" and not torch.cuda.is_available():
        return _without(document, f"torch {torch.__version__} sees no GPU")
    where = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    document |= {"torch": torch.__version__, "device": _name(torch, where)}
    pairs: dict[str, list[tuple[float, float]]] = {}
    for number in range(options.rounds):
        for name, probe, loop in _cases(torch, where, options):
            pair = probe(), loop()
            pairs.setdefault(name, []).append(pair)
            print(f"round {number + 1}  {name:<10}  probe {pair[0]:9.2f}  loop {pair[1]:9.2f}", flush=True)
    medians = {name: [statistics.median(each) for each in zip(*rows, strict=True)] for name, rows in pairs.items()}
    ratios = {name: round(probe / loop, 4) for name, (probe, loop) in medians.items()}
    document |= {"ratios": ratios, "medians": {name: [round(each, 3) for each in two] for name, two in medians.items()}}
    document["units"] = "TFLOP/s, GB/s for hbm; the probe's, the loop's"
    print(json.dumps(document))
    return int(any(ratio < _LEAST for ratio in ratios.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run")
    parser.add_argument(
        "--precisions", help="default: bf16,fp16,tf32,fp8 as far as the GPU has them; fp32 on processors"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    return parser.parse_args()


def _without(document: dict[str, object], reason: str) -> int:
    print(f"nothing measured: {reason}")
    print(json.dumps({**document, "skipped": reason}))
    return 0


def _name(torch: Any, where: Any) -> str:
    return str(torch.cuda.get_device_name(where)) if where.type == "cuda" else "cpu"


def _cases(
    torch: Any, where: Any, options: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], float], Callable[[], float]]]:
    """(name, the probe, the loop) of what this device has."""
    wanted = options.precisions or ("bf16,fp16,tf32,fp8" if where.type == "cuda" else "fp32")
    for precision in wanted.split(","):
        if precision == "fp8" and (where.type != "cuda" or torch.cuda.get_device_capability(where) < (8, 9)):
            print("fp8: this device has none")
            continue
        yield (
            f"gemm_{precision}",
            _probed("gemm", options, f"--precisions={precision}"),
            _Products(torch, where, precision, options.seconds),
        )
    if where.type == "cuda":
        yield "hbm", _probed("hbm", options), lambda: _copies(torch, where, options.seconds)


def _probed(name: str, options: argparse.Namespace, *args: str) -> Callable[[], float]:
    """The median of the probe's runs on the first GPU."""

    def run() -> float:
        wishes = [f"--seconds={options.seconds}", "--runs=3", "--deadline=300"]
        done = subprocess.run(
            [sys.executable, str(_RUN), f"probes.device.{name}", "measure", *wishes, *args],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        events = [json.loads(line) for line in done.stdout.splitlines()]
        found = [each for each in events if each["event"] == "measured" and each["gpu"] in (None, 0)]
        if done.returncode or not found or found[0]["wrong"]:
            raise SystemExit(f"probe_{name}.py ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return float(statistics.median(found[0]["rates"]))

    return run


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
            words = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}

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

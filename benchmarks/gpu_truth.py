"""The gemm and hbm probes against loops written by hand, on the first GPU of this machine: turn by turn, in one call.

    python3 benchmarks/gpu_truth.py [--rounds 3] [--precisions bf16,fp16,tf32,fp8]

It runs with any Python that has torch, and needs nothing else of nodectl. The probes run as on a node, a process each
time, on all GPUs at once; the loops are `torch.matmul(a, b, out=out)`, at the best of a few shapes tuned here, and
`b.copy_(a)` on arrays of 4 GiB, both timed by CUDA events. The last line is one JSON object: `ratios` are the probe's
figure over the loop's, the medians of all rounds, so more is better; below 0.95 the exit status is 1. Before it stands
the table for docs/truth.md. `sdc_busy` is the part of its time that the sdc probe keeps a GPU at work: its rounds,
times what the GPU needs for one. What a device or a torch lacks is said and left out. Without a GPU nothing is, and
the exit status is 0. `--device cpu` compares products on processors.
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


def _texts(output: str | bytes) -> list[bytes]:
    """The texts of the frames in what a program printed; read by the probes' own code, which is not installed here."""
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
    pairs: dict[str, list[tuple[float, float]]] = {}
    for number in range(options.rounds):
        for name, probe, loop in _cases(torch, where, options):
            try:
                pair = probe(), loop()
            except _LackingError as error:
                print(f"{name}: {error}", flush=True)
                continue
            finally:
                _give_back(torch, where)
            pairs.setdefault(name, []).append(pair)
            print(f"round {number + 1}  {name:<10}  probe {pair[0]:9.2f}  loop {pair[1]:9.2f}", flush=True)
    medians = {name: [statistics.median(each) for each in zip(*rows, strict=True)] for name, rows in pairs.items()}
    ratios = {name: round(probe / loop, 4) for name, (probe, loop) in medians.items()}
    document |= {"ratios": ratios, "medians": {name: [round(each, 3) for each in two] for name, two in medians.items()}}
    document["units"] = "TFLOP/s, GB/s for hbm; the probe's, the loop's"
    if where.type == "cuda":
        document["sdc_busy"] = round(_sdc_busy(torch, where, options), 3)
    _print_table(document, medians)
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


class _LackingError(Exception):
    """This device, or this torch, has no such product."""


def _give_back(torch: Any, where: Any) -> None:
    """The memory that torch keeps, for the probe is another process."""
    if where.type == "cuda":
        torch.cuda.empty_cache()


def _print_table(document: Mapping[str, object], medians: Mapping[str, Sequence[float]]) -> None:
    print(
        f"\n{document['device']}, torch {document['torch']}:\n\n| probe | probe's | loop's | ratio |\n|---|---|---|---|"
    )
    for name, (probe, loop) in medians.items():
        print(f"| `{name}` | {probe:.1f} | {loop:.1f} | {probe / loop:.3f} |")
    if "sdc_busy" in document:
        print(f"| `sdc` | at work {document['sdc_busy']} of its time | | |")
    print()


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
        (measured,) = _events(name, "measured", options, *args)
        if measured["wrong"]:
            raise SystemExit(f"probe {name}: {measured['wrong']} wrong elements")
        return float(statistics.median(measured["rates"]))

    return run


def _events(name: str, kind: str, options: argparse.Namespace, *args: str) -> list[dict[str, Any]]:
    """What the probe says of the first GPU, or of a processor; _LackingError where it lacks what is measured."""
    wishes = [f"--seconds={options.seconds}", f"--runs={_RUNS}", f"--deadline={_DEADLINE_S}"]
    done = subprocess.run(
        [sys.executable, str(_RUN), f"probes.device.{name}", "measure", *wishes, *args],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S + 100,
        check=False,
    )
    said = [json.loads(text) for text in _texts(done.stdout)]
    own = [event for event in said if event.get("gpu") in (None, 0)]
    lacking = [event["text"] for event in own if event["event"] == "lacks"]
    found = [event for event in own if event["event"] == kind]
    if lacking and not done.returncode:
        raise _LackingError(lacking[0])
    if done.returncode or not found:
        raise SystemExit(f"probe {name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return found[:1]


def _sdc_busy(torch: Any, where: Any, options: argparse.Namespace) -> float:
    """Rounds of the probe, times the GPU's own time of one, over the time that they took."""
    sys.path.insert(0, str(_PAYLOAD.parent))
    cuda, matmul, sdc, seeded = (
        import_module(f"payload.probes.device.{n}") for n in ("cuda", "matmul", "sdc", "seeded")
    )
    (computed,) = _events("sdc", "computed", options)
    counts = next(iter(computed["digests"].values()))
    names = [name for name in sdc.PRODUCTS if not matmul.lacks(cuda.Cuda(torch), name, 0)]
    computation = seeded.Computation(torch, where, 1, seeded.ON_GPU, names)
    rounds = sum(counts.values())
    return float(rounds * _each_s(torch, where, computation.results, options.seconds) / (_RUNS * options.seconds))


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

"""What tuning gives to training where the network is the limit: plain DDP under `stock` against what was found.

Four lab hosts, one rank each, links of 200 Mbit/s and 2 ms (then 20 ms), gloo. The workload is `llm`: a decoder of 1.7
million parameters on the bytes of nodectl's documentation, 2 sequences of 32 tokens a rank and step. It stands for
models whose gradients take several times as long to exchange as to compute: here 10 MB a rank, 0.4 s at the rate of
the links; with 1 billion parameters over 10 Gbit/s 4.8 s, beside a third of a second of computing 8,000 tokens on an
A100. The baseline is DDP as it comes: fp32, parts of 25 MiB, exchanged while the backward pass goes on.

First each way to train sees all samples once, from the same weights, in the same order; its loss is the mean over
held-out samples that no step has seen. What is more than 1 % from the baseline's loss is not taken, however fast.
Then the baseline and the steps of what is left are timed in turns: each step has all those before it, and its
speed-up over the one before it, with the 95 % interval over the rounds.

The last line is one JSON object; `speedup_tuned` and `loss_difference` are those of the first links.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import Any

from launch import _NODECTL, _ROOT, _VENV, Lab, _environment, _interrupt, _lab, _prepare, _ssh

from nodectl.trials.bootstrap import interval

_ALLOWED = 0.01
_TEXT = "/root/text"
_LINE = re.compile(r'\{"workload".*\}')
_DEADLINE_S = 1200.0
# hosts that share two cores may be late
_LEASE_S = "60"
_LR, _WARMUP_STEPS, _HELD_OUT = 2e-3, 20, 256
_MODEL = (
    *("--text", _TEXT, "--device", "cpu", "--precision", "fp32", "--mlp", "plain", "--hidden", "256"),
    *("--intermediate", "1024", "--layers", "2", "--heads", "4", "--seq", "32", "--batch", "2"),
    *("--schedule", "cosine", "--held-out", str(_HELD_OUT)),
)
# the article's ceilings, and no new slow start after each computation, in which a connection rests
_TCP = {
    "net.ipv4.tcp_rmem": "4096 131072 16777216",
    "net.ipv4.tcp_wmem": "4096 65536 16777216",
    "net.ipv4.tcp_slow_start_after_idle": "0",
}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train: options of the workload, and settings of TCP."""

    name: str
    options: tuple[str, ...] = ()
    accumulation: int = 1
    sysctl: Mapping[str, str] = field(default_factory=dict)

    def and_(self, other: Way) -> Way:
        """Both, under the other's name."""
        return Way(
            other.name,
            self.options + other.options,
            self.accumulation * other.accumulation,
            {**self.sysctl, **other.sysctl},
        )


_STOCK = Way("stock")
_TCP_WAY = Way("tcp", sysctl=_TCP)
_COMPRESSIONS = (
    Way("bf16", ("--compress", "bf16")),
    Way("powersgd-16", ("--compress", "powersgd", "--compress-rank", "16")),
    Way("topk-5%", ("--compress", "topk", "--compress-ratio", "0.05")),
)
# all of it at once: what is compressed waits for the network more often than it fills it
_BUCKETS = Way("buckets", ("--bucket-mb", "25", "--bucket-view"))
_ACCUMULATION = Way("accumulation", accumulation=2)


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    links: list[dict[str, Any]] = []
    ways: list[Way] = []
    losses: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="nodectl-headline-") as folder:
        environment = _environment(folder)
        for delay in options.delays.split(","):
            with _lab(4, environment, "--rate", options.rate, "--delay", delay) as lab:
                print(f"links of {options.rate} and {delay} each way", flush=True)
                bench = Bench(lab, environment, options)
                bench.prepare()
                if not ways:
                    ways, losses = choose(bench)
                links.append({"rate": options.rate, "delay": delay, **waterfall(bench, ways)})
    print(json.dumps({"name": "headline", **links[0], **losses, "links": links}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="200mbit", help="of each link")
    parser.add_argument("--delays", default="2ms,20ms", help="of the links, one way; the first has the losses, too")
    parser.add_argument("--steps", type=int, default=160, help="of a training whose loss is compared")
    parser.add_argument("--timed", type=int, default=24, help="steps of a training that is timed, the first 10 not")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workload", default="workload:llm", help="as nodectl launch takes it")
    return parser.parse_args()


class Bench:
    """The lab's hosts, and trainings on them."""

    def __init__(self, lab: Lab, environment: Mapping[str, str], options: argparse.Namespace) -> None:
        self.lab, self.environment, self.options = lab, environment, options
        self._stock: dict[str, dict[str, str]] = {}

    def prepare(self) -> None:
        """The environment, the text, and what the hosts' TCP has by itself."""
        _prepare(self.lab)
        pages = sorted((_ROOT / "docs").glob("*.md"))
        packed = subprocess.run(["tar", "c", *(page.name for page in pages)], cwd=_ROOT / "docs", capture_output=True)
        for host in self.lab.addresses:
            unpack = [*_ssh(self.lab, host), f"mkdir -p {_TEXT} && tar x -C {_TEXT}"]
            subprocess.run(unpack, input=packed.stdout, check=True)
            said = self._on(host, f"sysctl -n {' '.join(_TCP)}")
            self._stock[host] = dict(zip(_TCP, said.splitlines(), strict=True))

    def train(self, way: Way, steps: int) -> dict[str, Any]:
        """The last line of a training of so many steps without accumulation; with it the same samples in fewer."""
        for host, stock in self._stock.items():
            wanted = {name: " ".join(value.split()) for name, value in {**stock, **way.sysctl}.items()}
            self._on(host, "sysctl -q -w " + " ".join(f"'{name}={value}'" for name, value in wanted.items()))
        given = {
            "--steps": steps // way.accumulation,
            "--accumulation": way.accumulation,
            "--warmup-steps": _WARMUP_STEPS // way.accumulation,
            # Adam's rate goes with the root of the batch
            "--lr": _LR * math.sqrt(way.accumulation),
            "--log-every": max(1, steps // 4 // way.accumulation),
        }
        course = [str(word) for name_and_value in given.items() for word in name_and_value]
        launch = ["launch", "--nproc-per-node", "1", "--venv", _VENV, "--lease", _LEASE_S, self.options.workload, "--"]
        done = subprocess.run(
            [*_NODECTL, "-i", self.lab.inventory, *launch, *_MODEL, *course, *way.options],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        found = _LINE.findall(done.stdout)
        if done.returncode or not found:
            raise SystemExit(f"{way.name}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        answer: dict[str, Any] = json.loads(found[-1])
        return answer

    def _on(self, host: str, command: str) -> str:
        return subprocess.run([*_ssh(self.lab, host), command], capture_output=True, text=True, check=True).stdout


def choose(bench: Bench) -> tuple[list[Way], dict[str, Any]]:
    """The steps to the way that sends least of those whose loss is the baseline's, and all the losses."""
    steps = bench.options.steps
    stock = bench.train(_STOCK, steps)
    _tell("stock", stock, stock)
    rows = {_STOCK.name: _row(stock, stock)}
    kept: list[tuple[int, Way]] = []
    for way in (*_COMPRESSIONS, _ACCUMULATION):
        told = bench.train(way, steps)
        rows[way.name] = _row(told, stock)
        _tell(way.name, told, stock)
        if abs(rows[way.name]["loss_difference"]) <= _ALLOWED:
            kept.append((rows[way.name]["bytes_per_step"], way))
    # what sends least: one training's speed says too little beside other work
    compressions = sorted((sent, way.name, way) for sent, way in kept if way in _COMPRESSIONS)
    path = [_STOCK, _TCP_WAY, *(way for _, _, way in compressions[:1]), _BUCKETS]
    if any(way is _ACCUMULATION for _, way in kept):
        path.append(_ACCUMULATION)
    ways = _cumulated(path)
    tuned = bench.train(ways[-1], steps)
    if abs(_row(tuned, stock)["loss_difference"]) > _ALLOWED and ways[-1].name == _ACCUMULATION.name:
        ways = ways[:-1]
        tuned = bench.train(ways[-1], steps)
    _tell("tuned", tuned, stock)
    samples = steps * stock["global_batch"]
    difference = abs(_row(tuned, stock)["loss_difference"])
    return ways, {"loss_difference": difference, "samples": samples, "losses": {**rows, "tuned": _row(tuned, stock)}}


def _cumulated(path: Sequence[Way]) -> list[Way]:
    ways = [path[0]]
    for way in path[1:]:
        ways.append(ways[-1].and_(way))
    return ways


def _row(told: Mapping[str, Any], stock: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "held_out_loss": round(told["held_out_loss"], 5),
        "loss_difference": round(told["held_out_loss"] / stock["held_out_loss"] - 1, 5),
        "samples_per_s": told["samples_per_s"],
        "bytes_per_step": told["compression"]["bytes_per_step"],
        "net_bytes_per_step": told["net_bytes_per_step"],
    }


def _tell(name: str, told: Mapping[str, Any], stock: Mapping[str, Any]) -> None:
    row = _row(told, stock)
    print(
        f"  {name:13} loss {row['held_out_loss']:.4f} ({100 * row['loss_difference']:+.2f} %), "
        f"{row['samples_per_s']:.1f} samples/s, {row['bytes_per_step'] / 1e6:.2f} MB a rank and step",
        flush=True,
    )


def waterfall(bench: Bench, ways: Sequence[Way]) -> dict[str, Any]:
    """Each step's speed-up over the one before it, and that of all of them, by rounds in turn."""
    speeds: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(bench.options.rounds):
        # there and back again, so that a drift favours none
        for way in ways if number % 2 == 0 else ways[::-1]:
            speeds[way.name].append(bench.train(way, bench.options.timed)["samples_per_s"])
        print(
            f"  round {number + 1}  " + "  ".join(f"{name} {found[-1]:.1f}" for name, found in speeds.items()),
            flush=True,
        )
    steps = []
    for before, way in pairwise(ways):
        told = _gain(speeds[before.name], speeds[way.name])
        options = [
            *way.options[len(before.options) :],
            *(f"{name}={value}" for name, value in _new(before, way).items()),
        ]
        if way.accumulation != before.accumulation:
            options += ["--accumulation", str(way.accumulation)]
        steps.append({"name": way.name, **told, "options": options})
        print(
            f"  {way.name:13} x {told['speedup']:.2f} ({told['interval'][0]:.2f} to {told['interval'][1]:.2f})",
            flush=True,
        )
    whole = _gain(speeds[ways[0].name], speeds[ways[-1].name])
    print(
        f"  {'all':13} x {whole['speedup']:.2f} ({whole['interval'][0]:.2f} to {whole['interval'][1]:.2f})", flush=True
    )
    return {"speedup_tuned": whole["speedup"], "interval": whole["interval"], "steps": steps, "samples_per_s": speeds}


def _new(before: Way, way: Way) -> dict[str, str]:
    return {name: value for name, value in way.sysctl.items() if name not in before.sysctl}


def _gain(before: Sequence[float], after: Sequence[float]) -> dict[str, Any]:
    """How many times faster, as the geometric mean over the rounds, and its 95 % interval."""
    gains = [math.log(new / old) for old, new in zip(before, after, strict=True)]
    ends = interval(gains) if len(gains) > 1 else (gains[0], gains[0])
    return {"speedup": round(math.exp(fmean(gains)), 3), "interval": [round(math.exp(end), 3) for end in ends]}


if __name__ == "__main__":
    main()

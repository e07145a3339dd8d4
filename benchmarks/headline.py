"""What compressing and bundling gradients gives to training where the network is the limit: speed and loss of one run.

Four lab hosts, one rank each, gloo, over a grid of batch, rate and delay of the links. The workload is `llm`: a decoder
of 1.7 million parameters on the bytes of nodectl's documentation, 32 tokens a sequence, whose gradients are 7 MB a
step and rank. In each cell of the grid each way trains from the same weights over the same samples, once for each
seed, all ways in turns: DDP as it comes (parts of 1, then 25 MiB), bf16 and PowerSGD in one part, and PowerSGD with the
hosts' TCP settings. Of each run speed, held-out loss and losses over time are taken together. Of each way is told, over
the seeds: how many times as fast it is a step, how far its held-out loss is from DDP's, and how many times sooner it
comes to the lowest loss that both come to.

Without options a reduced grid is measured, of few steps; `--full` is the claim's own: three seeds and 1,000 steps.
A `--budget` that cannot hold the grid is refused before anything starts. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import fmean
from typing import Any

from bench_lab import NODECTL, ROOT, Lab, lab
from launch import VENV, prepare

from nodectl.common.units import time_text
from nodectl.errors import UsageError
from nodectl.lab.spec import parse_rate
from nodectl.probes.options import duration
from nodectl.trials.verdict import interval

_HOSTS = 4
_TEXT = "/root/text"
_LINE = re.compile(r'\{"workload".*\}')
_DEADLINE_S = 3600.0
# hosts that share two cores may be late
_LEASE_S = "60"
_LR, _HELD_OUT, _GRADIENT_BYTES = 2e-3, 256, 6_800_000
# of a launch: importing torch and meeting
_START_S = 10.0
_MODEL = (
    *("--text", _TEXT, "--device", "cpu", "--precision", "fp32", "--mlp", "plain", "--hidden", "256"),
    *("--intermediate", "1024", "--layers", "2", "--heads", "4", "--seq", "32", "--lr", str(_LR)),
    *("--schedule", "cosine", "--held-out", str(_HELD_OUT), "--no-resume"),
)
# the article's ceiling for what is sent, and no new slow start after each computation, in which a connection rests
_TCP = {"net.ipv4.tcp_wmem": "4096 65536 16777216", "net.ipv4.tcp_slow_start_after_idle": "0"}
_ONE_PART = ("--bucket-mb=25", "--bucket-view")
_POWERSGD = ("--compress=powersgd", "--compress-rank=16", *_ONE_PART)
# what the claim is made of
_FULL = {"batches": "2,8", "rates": "200mbit,1gbit", "delays": "0.1ms,2ms,20ms", "seeds": 3, "steps": 1000}
_REDUCED = {"batches": "2", "rates": "200mbit", "delays": "2ms,20ms", "seeds": 2, "steps": 60}


# (seconds of training, loss), in the order of time
Curve = Sequence[tuple[float, float]]
# a step's loss is of few samples: so many readings are averaged
_WINDOW = 5


def smoothed(curve: Curve) -> list[tuple[float, float]]:
    """Each reading as the mean with those before it, as many as are there up to the window."""
    losses = [loss for _, loss in curve]
    return [(at, fmean(losses[max(0, end - _WINDOW) : end])) for end, (at, _) in enumerate(curve, start=1)]


def shared_loss(curves: Sequence[Curve]) -> float | None:
    """Return the lowest loss to which all of them come; None if one has too few readings to tell."""
    if not curves or any(len(curve) < _WINDOW for curve in curves):
        return None
    return max(min(loss for _, loss in smoothed(curve)[_WINDOW - 1 :]) for curve in curves)


def seconds_to(curve: Curve, loss: float) -> float | None:
    """Return when its loss was first that low, between two readings by a straight line; None if it never was."""
    before: tuple[float, float] | None = None
    for at, now in smoothed(curve):
        if now <= loss:
            if before is None or before[1] <= now:
                return at
            return before[0] + (at - before[0]) * (before[1] - loss) / (before[1] - now)
        before = (at, now)
    return None


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train: options of the workload, and settings of TCP."""

    name: str
    flags: Sequence[str] = ()
    sysctl: Mapping[str, str] = field(default_factory=dict)


_WAYS = (
    Way("ddp"),
    Way("tcp", (), _TCP),
    Way("bf16", ("--compress=bf16", *_ONE_PART)),
    Way("powersgd", _POWERSGD),
    Way("powersgd+tcp", _POWERSGD, _TCP),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the grid."""

    batch: int
    rate: str
    delay: str


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of one run."""

    samples_s: float
    held_out_loss: float
    curve: tuple[tuple[float, float], ...]


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    cells, ways = _grid(options), _chosen(options)
    told = []
    for rate, delay in dict.fromkeys((cell.rate, cell.delay) for cell in cells):
        with lab(_HOSTS, "--rate", rate, "--delay", delay) as hosts:
            bench = Bench(hosts, options.steps)
            bench.prepare()
            for cell in (each for each in cells if (each.rate, each.delay) == (rate, delay)):
                told.append(measured(bench, cell, ways, range(options.seeds)))
    print(json.dumps({"name": "headline", "steps": options.steps, "seeds": options.seeds, "cells": told}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help=f"the whole grid: {_FULL}")
    parser.add_argument("--batches", help="sequences of a rank and step")
    parser.add_argument("--rates", help="of the links")
    parser.add_argument("--delays", help="of the links, one way")
    parser.add_argument("--seeds", type=int, help="trainings of each way")
    parser.add_argument("--steps", type=int, help="of a training")
    parser.add_argument("--ways", default=",".join(way.name for way in _WAYS), help="ddp among them")
    parser.add_argument("--budget", type=duration, metavar="SECONDS|2h", help="for all of it")
    first, _ = parser.parse_known_args()
    parser.set_defaults(**(_FULL if first.full else _REDUCED))
    options = parser.parse_args()
    try:
        needed_s = least_s(_grid(options), _chosen(options), options.seeds, options.steps)
    except (ValueError, UsageError) as error:
        parser.error(str(error))
    if options.budget is not None and options.budget < needed_s:
        parser.error(
            f"--budget {time_text(options.budget)}: the grid takes at least {time_text(needed_s)}, and nothing was "
            "started: give it more, or fewer --seeds, --steps, --ways or cells"
        )
    print(f"at least {time_text(needed_s)}", flush=True)
    return options


def _grid(options: argparse.Namespace) -> list[Cell]:
    parts = product(options.batches.split(","), options.rates.split(","), options.delays.split(","))
    return [Cell(int(batch), rate, delay) for batch, rate, delay in parts]


def _chosen(options: argparse.Namespace) -> list[Way]:
    """Return the ways by their names, DDP first, since it is what the others are held against."""
    names = set(options.ways.split(","))
    strange = names - {way.name for way in _WAYS}
    if strange or _WAYS[0].name not in names:
        raise ValueError(f"--ways {options.ways}: take ddp, and of {', '.join(way.name for way in _WAYS[1:])}")
    return [way for way in _WAYS if way.name in names]


def least_s(cells: Sequence[Cell], ways: Sequence[Way], seeds: int, steps: int) -> float:
    """Seconds that the grid takes however fast the processors are: launches, and what the links need for DDP."""
    sent = 2 * (_HOSTS - 1) / _HOSTS * 8 * _GRADIENT_BYTES
    plain = sum(not any("--compress" in flag for flag in way.flags) for way in ways)
    whole_s = sum(steps * sent / parse_rate(cell.rate) * plain for cell in cells)
    return seeds * (whole_s + len(cells) * len(ways) * _START_S)


class Bench:
    """The lab's hosts, and trainings on them."""

    def __init__(self, lab: Lab, steps: int) -> None:
        self.lab, self.steps = lab, steps
        self._stock: dict[str, dict[str, str]] = {}

    def prepare(self) -> None:
        """Put the environment and the text on the hosts, and read what their TCP has by itself."""
        prepare(self.lab)
        pages = sorted((ROOT / "docs").glob("*.md"))
        packed = subprocess.run(["tar", "c", *(page.name for page in pages)], cwd=ROOT / "docs", capture_output=True)
        for host in self.lab.hosts:
            self.lab.ssh(host, f"mkdir -p {_TEXT} && tar x -C {_TEXT}", packed.stdout)
            said = self.lab.ssh(host, f"sysctl -n {' '.join(_TCP)}")
            self._stock[host] = dict(zip(_TCP, said.splitlines(), strict=True))

    def train(self, way: Way, batch: int, seed: int) -> Trained:
        """One training to its end."""
        for host, stock in self._stock.items():
            wanted = {name: " ".join(value.split()) for name, value in {**stock, **way.sysctl}.items()}
            self.lab.ssh(host, "sysctl -q -w " + " ".join(f"'{name}={value}'" for name, value in wanted.items()))
        course = [f"--steps={self.steps}", f"--warmup-steps={min(20, self.steps // 4)}", f"--seed={seed}"]
        course += [f"--batch={batch}", f"--log-every={max(1, self.steps // 100)}"]
        launch = ["launch", "--nproc-per-node", "1", "--venv", VENV, "--lease", _LEASE_S, "workload:llm", "--"]
        argv = [*NODECTL, "-i", self.lab.inventory, *launch, *_MODEL, *course, *way.flags]
        done = subprocess.run(
            argv, env=self.lab.environment, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        found = _LINE.findall(done.stdout)
        if done.returncode or not found:
            raise SystemExit(f"{way.name}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        summary = json.loads(found[-1])
        curve = tuple((float(at), float(loss)) for at, loss in summary["losses"])
        return Trained(float(summary["samples_per_s"]), float(summary["held_out_loss"]), curve)


def measured(bench: Bench, cell: Cell, ways: Sequence[Way], seeds: Sequence[int]) -> dict[str, Any]:
    """Each way's runs in a cell, one a seed, and what they come to against DDP's."""
    print(f"batch {cell.batch}, links of {cell.rate} and {cell.delay} each way", flush=True)
    runs: dict[str, list[Trained]] = {way.name: [] for way in ways}
    for number, seed in enumerate(seeds):
        # there and back again, so that a drift favours none
        for way in ways if number % 2 == 0 else ways[::-1]:
            run = bench.train(way, cell.batch, seed)
            runs[way.name].append(run)
            print(
                f"  seed {seed}  {way.name:13} {run.samples_s:.1f} samples/s, loss {run.held_out_loss:.4f}", flush=True
            )
    plain, *others = runs
    told = {name: against(runs[plain], runs[name]) for name in others}
    for name, each in told.items():
        print(f"  {name:13} {words(each)}", flush=True)
    own = {
        "samples_per_s": [run.samples_s for run in runs[plain]],
        "held_out_loss": [run.held_out_loss for run in runs[plain]],
    }
    return {"batch": cell.batch, "rate": cell.rate, "delay": cell.delay, plain: own, "ways": told}


def against(plain: Sequence[Trained], other: Sequence[Trained]) -> dict[str, Any]:
    """Compare runs of the same seeds: speed of a step, time to the lowest loss of both, and the held-out loss."""
    sooner = []
    for base, run in zip(plain, other, strict=True):
        loss = shared_loss([base.curve, run.curve])
        ends = (None, None) if loss is None else (seconds_to(base.curve, loss), seconds_to(run.curve, loss))
        sooner.append(ends[0] / ends[1] if ends[0] and ends[1] else None)
    return {
        "speed": _gain([run.samples_s / base.samples_s for base, run in zip(plain, other, strict=True)]),
        "to_equal_loss": None if None in sooner else _gain([ratio for ratio in sooner if ratio is not None]),
        "held_out_loss_percent": round(
            100 * fmean(run.held_out_loss / base.held_out_loss - 1 for base, run in zip(plain, other, strict=True)), 2
        ),
    }


def words(told: Mapping[str, Any]) -> str:
    """One way's line; what a single seed says has no interval."""
    speed, sooner = told["speed"], told["to_equal_loss"]
    at_equal = "cannot be told" if sooner is None else _text(sooner)
    return f"speed {_text(speed)}; at equal loss {at_equal}; held-out loss {told['held_out_loss_percent']:+.2f} %"


def _text(gain: Mapping[str, Any]) -> str:
    if gain["interval"] is None:
        return f"{gain['times']:.2f} x, one seed"
    low, high = gain["interval"]
    reach = f"{low:.2f} to {high:.2f}"
    return f"noise ({reach} x)" if low <= 1 <= high else f"{gain['times']:.2f} x ({reach})"


def _gain(ratios: Sequence[float]) -> dict[str, Any]:
    """Return the geometric mean over the seeds, and its 95 % interval if there is more than one."""
    gains = [math.log(ratio) for ratio in ratios]
    ends = [round(math.exp(end), 3) for end in interval(gains)] if len(gains) > 1 else None
    return {"times": round(math.exp(fmean(gains)), 3), "interval": ends}


if __name__ == "__main__":
    main()

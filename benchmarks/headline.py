"""What tuning gives to training where the network is the limit: plain DDP under `stock` against what was found.

Four lab hosts, one rank each, links of 200 Mbit/s and 2 ms (then 20 ms), gloo. The workload is `llm`: a decoder of 1.7
million parameters on the bytes of nodectl's documentation, 2 sequences of 32 tokens a rank and step. It stands for
models whose gradients take several times as long to exchange as to compute: here 10 MB a rank, 0.4 s at the rate of
the links; with 1 billion parameters over 10 Gbit/s 4.8 s, beside a third of a second of computing 8,000 tokens on an
A100. The baseline is DDP as it comes: fp32, parts of 25 MiB, exchanged while the backward pass goes on.

`nodectl tune trial` searches a space of TCP settings and of the workload's options: each choice of options is trained
once with the baseline's samples, from the same weights, in the same order, and is left out where the loss of samples
that no step has seen is more than 1 % worse; the others are tried for speed in turns with the baseline. What was found
is then taken apart: the baseline and the steps to it are timed in turns, each step with all those before it, and its
speed-up over the one before it with the 95 % interval over the rounds. On the second links the losses are not
measured again, since a link changes none; what was left out on the first stays out.

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
from pathlib import Path
from statistics import fmean
from typing import Any

from launch import _NODECTL, _ROOT, _VENV, Lab, _environment, _interrupt, _lab, _prepare, _ssh

from nodectl.trials.bootstrap import interval

_WORKLOAD = "llm"
_TEXT = "/root/text"
_LINE = re.compile(r'\{"workload".*\}')
_DEADLINE_S = 3600.0
# hosts that share two cores may be late
_LEASE_S = "60"
_LR, _WARMUP_STEPS, _HELD_OUT = 2e-3, 20, 256
_MODEL = (
    *("--text", _TEXT, "--device", "cpu", "--precision", "fp32", "--mlp", "plain", "--hidden", "256"),
    *("--intermediate", "1024", "--layers", "2", "--heads", "4", "--seq", "32", "--batch", "2"),
    *("--schedule", "cosine", "--held-out", str(_HELD_OUT)),
)
# the article's ceiling for what is sent, and no new slow start after each computation, in which a connection rests
_TCP = {"net.ipv4.tcp_wmem": "4096 65536 16777216", "net.ipv4.tcp_slow_start_after_idle": "0"}
_POWERSGD = {"compress": "powersgd", "compress_rank": 16}
# all of it at once: what is compressed waits for the network more often than it fills it
_WHOLE = {"bucket_mb": 25, "bucket_view": True}
_EXCHANGES: tuple[Mapping[str, Any], ...] = (
    {"compress": "bf16"},
    {"compress": "bf16", **_WHOLE},
    {"compress": "topk", "compress_ratio": 0.05},
    _POWERSGD,
    {**_POWERSGD, **_WHOLE},
    {**_POWERSGD, **_WHOLE, "accumulation": 2},
)
# what was found is taken apart in this order
_PARTS = (("compression", "--compress"), ("buckets", "--bucket"), ("accumulation", "--accumulation"), ("others", "--"))


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train: options of the workload by their flags, and settings of TCP."""

    name: str
    flags: Mapping[str, str] = field(default_factory=dict)
    sysctl: Mapping[str, str] = field(default_factory=dict)


def main() -> None:
    """Measure, and print the figures."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    links: list[dict[str, Any]] = []
    losses: dict[str, Any] = {}
    kept: Sequence[Mapping[str, Any]] | None = None
    with tempfile.TemporaryDirectory(prefix="nodectl-headline-") as folder:
        environment = _environment(folder)
        for delay in options.delays.split(","):
            with _lab(4, environment, "--rate", options.rate, "--delay", delay) as lab:
                print(f"links of {options.rate} and {delay} each way", flush=True)
                bench = Bench(lab, environment, options, Path(folder))
                bench.prepare()
                trial = bench.tune(_EXCHANGES if kept is None else kept, with_losses=kept is None)
                ways = _taken_apart(trial)
                if kept is None:
                    kept, losses = _equal(trial), _losses(trial)
                links.append({"rate": options.rate, "delay": delay, **waterfall(bench, ways)})
    print(json.dumps({"name": "headline", **links[0], **losses, "links": links}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="200mbit", help="of each link")
    parser.add_argument("--delays", default="2ms,20ms", help="of the links, one way; the first has the losses, too")
    parser.add_argument("--steps", type=int, default=120, help="of a training whose loss is compared")
    parser.add_argument("--budget", default="20m", help="of the search on each of the links")
    parser.add_argument("--timed", type=int, default=24, help="steps of a training that is timed, the first 10 not")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


class Bench:
    """The lab's hosts, and trainings on them."""

    def __init__(self, lab: Lab, environment: Mapping[str, str], options: argparse.Namespace, folder: Path) -> None:
        self.lab, self.environment, self.options, self.folder = lab, environment, options, folder
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

    def tune(self, exchanges: Sequence[Mapping[str, Any]], *, with_losses: bool) -> dict[str, Any]:
        """The trial over these ways to exchange gradients, each with and without the settings of TCP."""
        space = self.folder / "space.yml"
        tcp = {name: {"value": value, "never_lower": False} for name, value in _TCP.items()}
        together = {"tcp": [{}, {"sysctl": tcp}], "exchange": [{}, *({"training": dict(each)} for each in exchanges)]}
        space.write_text(json.dumps({"together": together}))
        steps = str(self.options.steps)
        asked = ["--space", str(space), "--budget", self.options.budget, "--pairs", "5"]
        asked += ["--loss-steps", steps if with_losses else "0"]
        words = [
            "--output",
            "json",
            "tune",
            "trial",
            "--yes",
            "--workload",
            "llm",
            *asked,
            "--",
            *_MODEL,
            *_course(steps),
        ]
        # what it says on the way is shown
        done = self._run(words, stderr=None)
        # 3: something is undecided, such as a candidate for which there was no time
        if done.returncode not in (0, 3):
            raise SystemExit(f"nodectl tune trial: exit status {done.returncode}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def train(self, way: Way) -> float:
        """Samples a second of a training so short that only its speed says something."""
        for host, stock in self._stock.items():
            wanted = {name: " ".join(value.split()) for name, value in {**stock, **way.sysctl}.items()}
            self._on(host, "sysctl -q -w " + " ".join(f"'{name}={value}'" for name, value in wanted.items()))
        launch = [
            "launch",
            "--nproc-per-node",
            "1",
            "--venv",
            _VENV,
            "--lease",
            _LEASE_S,
            f"workload:{_WORKLOAD}",
            "--",
        ]
        flags = [f"{flag}={value}" if value else flag for flag, value in way.flags.items()]
        done = self._run([*launch, *_MODEL, *_course(str(self.options.timed)), "--held-out", "0", *flags])
        found = _LINE.findall(done.stdout)
        if done.returncode or not found:
            raise SystemExit(f"{way.name}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return float(json.loads(found[-1])["samples_per_s"])

    def _run(self, words: Sequence[str], stderr: int | None = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
        argv = [*_NODECTL, "-i", self.lab.inventory, *words]
        return subprocess.run(
            argv,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )

    def _on(self, host: str, command: str) -> str:
        return subprocess.run([*_ssh(self.lab, host), command], capture_output=True, text=True, check=True).stdout


def _course(steps: str) -> list[str]:
    """A training of so many steps, as the baseline takes them."""
    return ["--steps", steps, "--warmup-steps", str(_WARMUP_STEPS), "--lr", str(_LR), "--log-every", steps]


def _taken_apart(trial: Mapping[str, Any]) -> list[Way]:
    """The steps from the baseline to what the trial found, each with all those before it."""
    ways = [Way("stock")]
    better = {summary["profile"] for summary in trial["summaries"] if summary["verdict"] == "better"}
    found = next((each for each in trial["candidates"] if each["label"] in better), None)
    if found is None:
        return ways
    sysctl = {name: setting["value"] for name, setting in (found["overrides"] or {}).get("sysctl", {}).items()}
    if sysctl:
        ways.append(Way("tcp", {}, sysctl))
    left = dict(found["run_with"])
    for name, beginning in _PARTS:
        part = {flag: left.pop(flag) for flag in list(left) if flag.startswith(beginning)}
        if part:
            ways.append(Way(name, {**ways[-1].flags, **part}, sysctl))
    return ways


def _equal(trial: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The ways to exchange gradients that were not left out for their loss."""
    kept = [each["run_with"] for each in trial["candidates"]]
    return [each for each in _EXCHANGES if _flags(each) in kept]


def _flags(training: Mapping[str, Any]) -> dict[str, str]:
    return {f"--{name.replace('_', '-')}": "" if value is True else str(value) for name, value in training.items()}


def _losses(trial: Mapping[str, Any]) -> dict[str, Any]:
    """The held-out loss of the baseline, and how far the best's is from it."""
    told = {row["profile"]: row["conditions"].get("held_out_loss") for row in trial["conditions"]}
    stock = told[trial["baseline"]["label"]]
    better = [summary["profile"] for summary in trial["summaries"] if summary["verdict"] == "better"]
    tuned = told[better[0]] if better else stock
    return {"loss_difference": round(abs(tuned / stock - 1), 5), "held_out_loss": {"stock": stock, "tuned": tuned}}


def waterfall(bench: Bench, ways: Sequence[Way]) -> dict[str, Any]:
    """Each step's speed-up over the one before it, and that of all of them, by rounds in turn."""
    speeds: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in range(bench.options.rounds):
        # there and back again, so that a drift favours none
        for way in ways if number % 2 == 0 else ways[::-1]:
            speeds[way.name].append(bench.train(way))
        print(
            f"  round {number + 1}  " + "  ".join(f"{name} {found[-1]:.1f}" for name, found in speeds.items()),
            flush=True,
        )
    steps = []
    for before, way in pairwise(ways):
        told = _gain(speeds[before.name], speeds[way.name])
        options = [f"{name}={value}" for name, value in _new(before.sysctl, way.sysctl).items()]
        options += [f"{name} {value}".strip() for name, value in _new(before.flags, way.flags).items()]
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


def _new(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in after.items() if name not in before}


def _gain(before: Sequence[float], after: Sequence[float]) -> dict[str, Any]:
    """How many times faster, as the geometric mean over the rounds, and its 95 % interval."""
    gains = [math.log(new / old) for old, new in zip(before, after, strict=True)]
    ends = interval(gains) if len(gains) > 1 else (gains[0], gains[0])
    return {"speedup": round(math.exp(fmean(gains)), 3), "interval": [round(math.exp(end), 3) for end in ends]}


if __name__ == "__main__":
    main()

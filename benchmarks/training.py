"""The workloads beside the loops that the articles print, on this machine's CPU: the same training, and with options.

Each side is a process of the lab's Python with torch; they take turns, a few steps each, and a ratio is the median over
the rounds of seconds a step, ours over the article's (less is better). The shapes are the articles', with fewer layers
and smaller batches (training_sides.py). The last line is one JSON object; exit status 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from training_sides import SIDES

from nodectl.provision.wheels import ensure_lab_share

_SIDES = Path(__file__).with_name("training_sides.py")
WARM_UP_STEPS = 3
# the articles' loops; `article` is what the others are held against
RIVALS = ("article", "as_written")
# the same maths may be as slow, within what a shared machine's clock is worth; one of the options must win
SAME_LIMIT = 1.05
BEST_LIMIT = 0.9


class Turns:
    """One side's process."""

    def __init__(self, python: Path, article: str, side: str, options: argparse.Namespace) -> None:
        pipe = subprocess.PIPE
        first = ["chrt", "--rr", "1"] if options.real_time else []
        command = [*first, str(python), "-W", "ignore", str(_SIDES), article, side]
        env = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)

    def take(self, steps: int) -> float:
        """Seconds a step, over so many."""
        put, got = self._process.stdin, self._process.stdout
        if put is None or got is None:
            raise RuntimeError("a side without pipes")
        put.write(f"{steps}\n")
        put.flush()
        line = got.readline()
        if not line:
            sys.exit(f"a side ended with {self._process.wait()}")
        return float(line) / steps

    def end(self) -> None:
        """Let it go."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def compared(python: Path, article: str, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds a step of each side in each round, and the medians of the ratios to the article's loop."""
    sides = {side: Turns(python, article, side, options) for side in SIDES[article]}
    for process in sides.values():
        process.take(WARM_UP_STEPS)
    took: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(options.rounds):
        order = list(sides) if number % 2 else list(reversed(sides))
        for side in order:
            took[side].append(sides[side].take(options.steps))
    for process in sides.values():
        process.end()
    pairs = {side: [own / base for own, base in zip(took[side], took["article"], strict=True)] for side in took}
    return {
        "seconds_a_step": {side: round(median(own), 4) for side, own in took.items()},
        "ratios": {side: round(median(own), 3) for side, own in pairs.items() if side not in RIVALS},
        "rivals": {side: round(median(own), 3) for side, own in pairs.items() if side in RIVALS},
        "spread": {side: [round(min(own), 3), round(max(own), 3)] for side, own in pairs.items()},
    }


def main() -> None:
    """Print a row a side, and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=1, help="of a side in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of a side")
    parser.add_argument("--real-time", action="store_true", help="go before all other work on this machine")
    options = parser.parse_args()
    python = ensure_lab_share(lambda text: print(text, file=sys.stderr)) / "venv" / "bin" / "python"
    conditions = {"threads": options.threads, "real_time": options.real_time}
    groups: dict[str, Any] = {group: {} for group in ("ratios", "rivals", "spread", "seconds_a_step")}
    answer: dict[str, Any] = {"name": "training", **groups, **conditions}
    missed = []
    for article in SIDES:
        found = compared(python, article, options)
        for side, seconds in found["seconds_a_step"].items():
            ratio = {**found["ratios"], **found["rivals"]}[side]
            low, high = found["spread"][side]
            print(f"{article:12} {side:14} {seconds * 1e3:8.1f} ms a step, {ratio:.3f} times ({low:.3f} to {high:.3f})")
        for group in found:
            answer[group].update({f"{article}_{side}": value for side, value in found[group].items()})
        ratios = found["ratios"]
        missed += [f"{article}: the same maths is slower"] * (ratios["same"] > SAME_LIMIT)
        missed += [f"{article}: no option makes it faster"] * (min(ratios.values()) > BEST_LIMIT)
    for line in missed:
        print(line)
    print(json.dumps(answer))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()

"""How often the verdict on a trial is wrong, and how often it sees what is there, on simulated series.

False verdicts on one series: the baseline against itself, with noise of 1 to 10 % of seven kinds. Power: a candidate
that is 10 % faster. The last line is one JSON object; `ratios` are rates in parts of one: false verdicts (less is
better) and missed gains (less is better).

False summaries of whole trials: 16, 128 and 256 paths without any effect, 3 % noise, 5 pairs, and a measurement in 200
that fails on either side, through the course of a trial as it is. `power_10_percent`: how often a trial in which every
path gains 10 % is called better, at the size at which it is least often.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.trial import Pair, Series
from nodectl.model.verdict import Outcome
from nodectl.probes.base import ProbeResult
from nodectl.trials.families import judged
from nodectl.trials.series import Taken, schedule, series_of
from nodectl.trials.turns import Course, Turns
from nodectl.trials.verdict import judge

KINDS = ("normal", "heavy tails", "stalls", "random walk", "steady decline", "skewed", "two states")
NOISE = (0.01, 0.03, 0.1)
PAIRS = (5, 7, 10, 20)
_STALL, _STALLED = 0.07, -1.2
FLEET = (16, 128, 256)
FLEET_PAIRS = 5
_FLEET_NOISE, _FAILING = 0.03, 0.005
_BASELINE, _CANDIDATE = "stock", "candidate"
# so many trials in a task of the pool
_PART = 25


@dataclass(frozen=True, slots=True)
class Case:
    """Series of one kind: relative noise of a measurement, and the candidate's true gain."""

    kind: str
    noise: float
    pairs: int
    gain: float = 0.0


def logs(kind: str, noise: float, count: int, chance: random.Random) -> Iterator[float]:
    """Measurements in the order of time, as logarithms about 0."""
    level = 0.0
    for place in range(count):
        plain = chance.gauss(0, noise)
        if kind == "heavy tails":  # Student's t of 3 degrees of freedom, cut to about the same width
            plain /= 1.2 * math.sqrt(sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        elif kind == "stalls" and chance.random() < _STALL:
            plain += _STALLED
        elif kind == "random walk":
            level += chance.gauss(0, noise / 2)
        elif kind == "steady decline":
            level = -0.3 * place / count
        elif kind == "skewed":
            plain = -noise * chance.expovariate(1)
        elif kind == "two states":
            plain = plain / 3 - chance.choice([0, 3 * noise])
        yield level + plain


def series(case: Case, chance: random.Random, unit: str = "GB/s") -> Series:
    """One trial in the order in which nodectl takes its measurements."""
    values: dict[int, dict[bool, float]] = {}
    for turn, log in zip(schedule(case.pairs), logs(case.kind, case.noise, 2 * case.pairs, chance), strict=True):
        values.setdefault(turn.pair, {})[turn.candidate] = math.exp(log) * (1 + case.gain * turn.candidate)
    pairs = tuple(Pair(found[False], found[True], number % 2 == 1) for number, found in values.items())
    return Series("candidate", "stock", "simulated", unit, pairs)


def outcomes(case: Case, count: int, seed: int) -> dict[Outcome, int]:
    """How often each verdict came out."""
    chance = random.Random(f"{seed} {case}")  # noqa: S311
    found = dict.fromkeys(Outcome, 0)
    for _ in range(count):
        found[judge(series(case, chance)).verdict] += 1
    return found


@dataclass(slots=True)
class PaperPaths:
    """A fleet on paper: each turn measures every path, with noise, and some fail by chance."""

    count: int
    chance: random.Random
    gain: float = 0.0
    noise: float = _FLEET_NOISE
    failing: float = _FAILING
    turns: int = 0
    on: str = ""

    def put_on(self, profile: str) -> tuple[Finding, ...]:
        """Put a profile on, which cannot fail."""
        self.on = profile
        return ()

    def measure(self) -> ProbeResult:
        """Return what a turn measures."""
        self.turns += 1
        return ProbeResult(tuple(self._one(path) for path in range(self.count) if self._works()))

    def _works(self) -> bool:
        return self.chance.random() >= self.failing

    def _one(self, path: int) -> Measurement:
        # paths differ by up to half
        level = 10 * (1 + path / (2 * self.count)) * (1 + self.gain * (self.on == _CANDIDATE))
        hosts = (f"node{path}", f"node{path + 1}")
        value = level * math.exp(self.chance.gauss(0, self.noise))
        return Measurement("tcp", hosts, value, "Gbit/s", " -> ".join(hosts), conditions={"streams": 1})


def summary_of_trial(paths: PaperPaths, pairs: int) -> Outcome:
    """Return the summary's outcome of a whole trial over the paths."""
    taken: dict[int, list[Taken]] = {}
    turns = Turns(paths.put_on, dict, paths.measure, lambda _: None, lambda: float(paths.turns))
    Course(turns, _BASELINE, [_CANDIDATE], lambda: None, taken).interleave(pairs, lambda _: True)
    _, (summary,) = judged(series_of(_CANDIDATE, _BASELINE, taken[1]))
    return summary.verdict


def summaries(count: int, gain: float, trials: int, seed: int) -> dict[Outcome, int]:
    """How often each summary came out of trials over so many paths."""
    chance = random.Random(f"{seed} {count} {gain}")  # noqa: S311
    found = dict.fromkeys(Outcome, 0)
    for _ in range(trials):
        found[summary_of_trial(PaperPaths(count, chance, gain), FLEET_PAIRS)] += 1
    return found


def main() -> None:
    """Simulate, and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000, help="of each kind, noise and number of pairs")
    parser.add_argument("--trials", type=int, default=500, help="whole trials without effect of each size")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ratios: dict[str, float] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for pairs in PAIRS:
            cases = [Case(kind, noise, pairs) for kind in KINDS for noise in NOISE]
            results = list(pool.map(outcomes, cases, [options.series] * len(cases), [options.seed] * len(cases)))
            false = [count[Outcome.BETTER] + count[Outcome.WORSE] for count in results]
            for kind, part in zip(KINDS, _chunks(false, len(NOISE)), strict=True):
                told = ", ".join(f"{1000 * each / options.series:.1f}" for each in part)
                print(f"{pairs:2} pairs, {kind:14}: false verdicts in 1,000 at 1, 3 and 10 % noise: {told}")
            ratios[f"false_{pairs}_pairs"] = sum(false) / (len(cases) * options.series)
            found = outcomes(Case("normal", 0.03, pairs, gain=0.1), options.series, options.seed)
            ratios[f"missed_{pairs}_pairs"] = 1 - found[Outcome.BETTER] / options.series
            print(f"{pairs:2} pairs: +10 % at 3 % noise is seen in {found[Outcome.BETTER]} of {options.series}")
        false_summaries, power = _fleets(pool, options.trials, options.seed)
    of_trials = {"false_summaries": false_summaries, "power_10_percent": power}
    print(json.dumps({"name": "verdict", "ratios": ratios, "series": options.series, **of_trials}))


def _fleets(pool: ProcessPoolExecutor, trials: int, seed: int) -> tuple[dict[str, float], float]:
    """Return the share of false summaries by the number of paths, and the least power."""
    false, power = {}, []
    for count in FLEET:
        nothing = _many(pool, count, 0.0, trials, seed)
        false[str(count)] = 1 - nothing[Outcome.NOISE] / nothing.total()
        gained = _many(pool, count, 0.1, max(_PART, trials // 5), seed)
        power.append(gained[Outcome.BETTER] / gained.total())
        told = ", ".join(f"{outcome} {number}" for outcome, number in nothing.items() if number)
        print(f"{count:3} paths, {FLEET_PAIRS} pairs, no effect: {told}; +10 % is seen in {power[-1]:.0%}")
    return false, min(power)


def _many(pool: ProcessPoolExecutor, count: int, gain: float, trials: int, seed: int) -> Counter[Outcome]:
    parts = [(count, gain, min(_PART, trials - at), seed * 1000 + at) for at in range(0, trials, _PART)]
    found: Counter[Outcome] = Counter()
    for part in pool.map(summaries, *zip(*parts, strict=True)):
        found.update(part)
    return found


def _chunks(values: Sequence[int], length: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(values), length):
        yield values[start : start + length]


if __name__ == "__main__":
    main()

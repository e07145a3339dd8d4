"""Where one choice overtakes another as messages grow."""

import random

from nodectl.model.trial import Pair, Series
from nodectl.trials.crossover import crossover, crossovers

SIZES = [1 << exponent for exponent in range(10, 27, 2)]


def at_sizes(percents: list[float], noise: float = 0.01, unit: str = "GB/s", seed: int = 1) -> list[Series]:
    """A series for each size: tree against ring, with that gain."""
    chance = random.Random(seed)
    many = []
    for size_bytes, percent in zip(SIZES, percents, strict=True):
        pairs = []
        for number in range(10):
            tree = (1 + percent / 100) * (1 + chance.gauss(0, noise))
            pairs.append(Pair(1 + chance.gauss(0, noise), tree, number % 2 == 1))
        many.append(Series("tree", "ring", "nccl", unit, tuple(pairs), "all_reduce", size_bytes))
    return many


def test_small_is_trees_and_large_is_rings() -> None:
    # +20 % at 256 KiB and -20 % at 1 MiB: between them
    found = crossover(at_sizes([60, 50, 40, 30, 20, -20, -30, -35, -40]))
    assert found is not None
    assert (found.below, found.above) == ("tree", "ring")
    assert 1 << 18 < found.size_bytes < 1 << 20
    low, high = found.interval_bytes
    assert 1 << 18 <= low <= found.size_bytes <= high <= 1 << 20


def test_the_other_way_round_and_in_any_order() -> None:
    many = at_sizes([-60, -50, -40, -30, -20, 20, 30, 40, 50])
    found = crossover(many[::-1])
    assert found is not None
    assert (found.below, found.above) == ("ring", "tree")
    assert found == crossover(many)


def test_of_everything_that_was_measured_at_several_sizes() -> None:
    tree = at_sizes([60, 50, 40, 30, 20, -20, -30, -35, -40])
    others = [
        Series(each.profile, each.baseline, each.probe, each.unit, each.pairs, "broadcast", each.size_bytes)
        for each in at_sizes([30] * 9)
    ]
    alone = Series("tree", "ring", "tcp", "Gbit/s", tree[0].pairs, "a -> b")
    (found,) = crossovers([*others, alone, *tree])
    assert (found.probe, found.subject, found.below, found.above) == ("nccl", "all_reduce", "tree", "ring")
    assert crossovers([*others, alone]) == ()

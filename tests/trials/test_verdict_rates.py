"""How often the verdict errs, on series simulated with fixed seeds; `benchmarks/verdict.py` does the same at length."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nodectl.model.verdict import Outcome

# thousands of simulated trials
pytestmark = pytest.mark.slow

_BENCHMARK = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "verdict.py"


@pytest.fixture(scope="module")
def simulated() -> ModuleType:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("verdict_benchmark", _BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


# (pairs, series of each kind and noise, false verdicts allowed in 1,000)
@pytest.mark.parametrize(("pairs", "count", "allowed"), [(5, 200, 5), (7, 60, 4), (10, 120, 4)])
def test_the_baseline_against_itself_is_noise(simulated: ModuleType, pairs: int, count: int, allowed: int) -> None:
    false = total = 0
    for kind in simulated.KINDS:
        for noise in simulated.NOISE:
            found = simulated.outcomes(simulated.Case(kind, noise, pairs), count, seed=1)
            false += found[Outcome.BETTER] + found[Outcome.WORSE]
            total += count
            assert found[Outcome.UNKNOWN] == 0
    assert false <= allowed * total / 1000


@pytest.mark.parametrize(("gain", "verdict"), [(0.10, Outcome.BETTER), (-0.10, Outcome.WORSE)])
def test_ten_percent_is_seen_through_noise_of_three(simulated: ModuleType, gain: float, verdict: Outcome) -> None:
    found = simulated.outcomes(simulated.Case("normal", 0.03, 10, gain), 200, seed=3)
    assert found[verdict] >= 0.98 * 200


@pytest.mark.parametrize("count", [16, 128, 256])
def test_whole_trials_without_effect_are_noise_and_a_gain_is_seen(simulated: ModuleType, count: int) -> None:
    nothing = simulated.summaries(count, 0.0, 25, seed=5)
    assert nothing[Outcome.NOISE] >= 24
    assert simulated.summaries(count, 0.1, 10, seed=6)[Outcome.BETTER] >= 8

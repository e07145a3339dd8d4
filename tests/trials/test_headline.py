"""benchmarks/headline.py without a lab: what it refuses before anything starts, and what runs of the same seeds say."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "headline.py"


@pytest.fixture(scope="module")
def headline() -> Any:
    sys.path.insert(0, str(PROGRAM.parent))
    try:
        spec = importlib.util.spec_from_file_location("headline", PROGRAM)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["headline"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(PROGRAM.parent))
    return module


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--full", "--budget=2h"), "--budget 2 h: the grid takes at least"),
        (("--ways=powersgd",), "--ways powersgd: take ddp"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(words: tuple[str, ...], said: str) -> None:
    done = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_a_way_that_is_faster_a_step_and_learns_less_gains_nothing_at_equal_loss(headline: Any) -> None:
    def run(step_s: float, fall: float) -> Any:
        curve = tuple((step_s * step, 4 - fall * step) for step in range(1, 41))
        return headline.Trained(2 / step_s, curve[-1][1], curve)

    told = headline.against([run(1.0, 0.05), run(1.1, 0.05)], [run(0.5, 0.02), run(0.55, 0.02)])
    assert told["speed"] == {"times": 2.0, "interval": [2.0, 2.0]}
    assert told["to_equal_loss"]["times"] < 0.9 and told["held_out_loss_percent"] > 50
    assert headline.words(told).startswith("speed 2.00 x (2.00 to 2.00); at equal loss 0.8")
    alone = headline.against([run(1.0, 0.05)], [run(1.0, 0.05)])
    assert alone["speed"]["interval"] is None and "one seed" in headline.words(alone)
    drift = headline.against([run(1.0, 0.05), run(1.0, 0.05)], [run(0.9, 0.05), run(1.1, 0.05)])
    assert headline._text(drift["speed"]).startswith("noise (")

"""The families, ten minutes each: `make fuzz`, or `pytest -m fuzz`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.families import FAMILIES

_SECONDS = float(os.environ.get("NODECTL_FUZZ_SECONDS", "600"))
_ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.fuzz
@pytest.mark.timeout(_SECONDS + 300)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_keeps_its_promises(family: str, request: pytest.FixtureRequest) -> None:
    if "fuzz" not in str(request.config.getoption("-m")):
        pytest.skip(f"{_SECONDS:.0f} s a family: run with `make fuzz`")
    options = ["--seconds", str(_SECONDS), "--keep", str(_ROOT / ".state/fuzz")]
    command = [sys.executable, "-m", "tests.fuzz", family, *options]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip(), done.stderr[-3000:]
    tally = json.loads(done.stdout.splitlines()[-1])
    sys.stdout.write(f"{json.dumps(tally)}\n")
    assert tally["crashes"] == []
    assert done.returncode == 0, done.stderr[-3000:]
    assert tally["inputs"] > 10 * _SECONDS

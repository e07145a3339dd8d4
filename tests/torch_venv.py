"""Where tests find a PyTorch: named by NODECTL_TEST_TORCH, else the lab's share, which `make test` fills first."""

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

_SHARE = Path(__file__).resolve().parent.parent / ".cache/nodectl/lab-share/venv"
_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


@lru_cache(maxsize=1)
def torch_venv() -> str:
    """The folder of an environment that has torch; skips the test, with the reason, where there is none."""
    places = [place for place in (os.environ.get("NODECTL_TEST_TORCH"), str(_SHARE), sys.prefix) if place]
    for place in places:
        python = Path(place) / "bin" / "python"
        if python.exists() and subprocess.run([python, "-c", _HAS_TORCH], check=False).returncode == 0:
            return place
    pytest.skip(f"no torch in any of {', '.join(places)}: name an environment that has it in NODECTL_TEST_TORCH")


@lru_cache(maxsize=1)
def vision_venv() -> str:
    """The same, where it has torchvision too; the test is skipped where it has not."""
    place = torch_venv()
    ask = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torchvision') is None)"
    if subprocess.run([f"{place}/bin/python", "-c", ask], check=False).returncode:
        pytest.skip(f"no torchvision in {place}: `make setup` fills the lab's share with it")
    return place

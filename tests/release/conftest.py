"""What is published, made once for all tests of it."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl import __version__
from scripts.dist import packages


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel and the sdist that it was made of."""

    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """As `make dist` makes them, but of the version that this checkout has: other tests ask for it at the same time."""
    return Built(*packages(tmp_path_factory.mktemp("built"), __version__))

"""What is published, made once for all tests of it."""

import csv
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl import __version__
from scripts.dist import packages, uv


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel and the sdist that it was made of."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True, slots=True)
class Place:
    """An environment with nodectl in it, and an empty folder to be in."""

    environment: Path
    env: Mapping[str, str]

    def run(self, *argv: str) -> str:
        """What a program of that environment prints."""
        folder = self.environment.parent / "cwd"
        folder.mkdir(exist_ok=True)
        program = [str(self.environment / "bin" / argv[0]), *argv[1:]]
        done = subprocess.run(program, cwd=folder, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self) -> dict[str, str]:
        """What the installation has written, and each one's digest."""
        (record,) = self.environment.glob("lib/python3.*/site-packages/nodectl-*.dist-info/RECORD")
        rows = csv.reader(record.read_text().splitlines())
        own = ("nodectl/", "ansible_collections/nodectl/fleet/")
        return {name: digest for name, digest, _ in rows if name.startswith(own) and not name.endswith(".pyc")}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """As `make dist` makes them, but of the version that this checkout has: other tests ask for it at the same time."""
    return Built(*packages(tmp_path_factory.mktemp("built"), __version__))


def installed(python: str, what: Path, folder: Path) -> Place:
    """`what` and all it depends on, with that Python."""
    environment = folder / "environment"
    uv("venv", "--quiet", "--python", python, str(environment))
    uv("pip", "install", "--quiet", "--python", str(environment / "bin" / "python"), str(what))
    env = {"HOME": str(folder), "PATH": f"{environment}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    env["ANSIBLE_PIPELINING"] = "1"
    return Place(environment, env)

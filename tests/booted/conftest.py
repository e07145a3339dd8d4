"""Fleets of booted systems for tests, and nodectl run against them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.node_paths import LAB_SHARE
from tests.booted.fleet import Fleet
from tests.booted.needs import CONTAINER_PROGRAMS, MACHINE_PROGRAMS, skip_unless_possible
from tests.booted.sessions import containers, machines

STATE = Path(__file__).resolve().parents[2] / ".state" / "tests"
_RUN_S = 1500  # an emulated machine takes seconds for each task


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished command of nodectl's: its exit status, its JSON document, and what it said."""

    status: int
    document: Mapping[str, Any]
    said: str

    @property
    def changed(self) -> dict[str, int]:
        """Tasks that changed something, by host."""
        return {name: tally["changed"] for name, tally in self.document["hosts"].items()}

    def __str__(self) -> str:
        """For a failing assertion."""
        return f"exit status {self.status}\n{self.said}\n{json.dumps(self.document)}"


Nodectl = Callable[..., Ran]


@pytest.fixture(scope="session")
def run_nodectl(cli_env: Mapping[str, str]) -> Nodectl:
    """`run_nodectl(inventory, command, *options, password=…)`: as an operator without a terminal; asserts nothing."""

    def run(inventory: str, command: str, *options: str, password: str = "") -> Ran:
        argv = [sys.executable, "-m", "nodectl", "-i", inventory, "--output", "json", command, *options]
        argv += ["-K"] if password else []
        done = subprocess.run(
            argv,
            input=f"{password}\n" if password else "",
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            # an emulated CPU takes its time for a login
            env={**cli_env, "ANSIBLE_TIMEOUT": "60"},
            # without a terminal of its own a prompt is answered on standard input
            start_new_session=True,
            check=False,
        )
        return Ran(done.returncode, json.loads(done.stdout or '{"hosts": {}}'), done.stderr)

    return run


@pytest.fixture(scope="session")
def lab_share(cli_env: Mapping[str, str]) -> Path:
    """The folder of wheels that systems on this machine share."""
    subprocess.run([sys.executable, "-m", "nodectl.provision.wheels"], env=dict(cli_env), check=True, timeout=_RUN_S)
    return Path(cli_env["XDG_CACHE_HOME"]) / "nodectl" / "lab-share"


@pytest.fixture(scope="session")
def booted_cache(cli_env: Mapping[str, str]) -> Iterator[None]:
    """Images are kept where nodectl keeps the lab's wheels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", cli_env["XDG_CACHE_HOME"])
        yield


@pytest.fixture(scope="module")
def boxes(booted_cache: None, lab_share: Path) -> Iterator[Fleet]:
    """Three containers: one for each kind of login."""
    skip_unless_possible(CONTAINER_PROGRAMS, "booted containers")
    with containers(STATE / "booted", ("box01", "box02", "box03"), {lab_share: LAB_SHARE}) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def vms(booted_cache: None) -> Iterator[Fleet]:
    """Two emulated machines."""
    skip_unless_possible(MACHINE_PROGRAMS, "emulated machines")
    with machines(STATE / "booted", ("vm01", "vm02")) as fleet:
        yield fleet


os.umask(0o022)  # what is written into roots is read by everybody there

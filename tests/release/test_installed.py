"""What is published, installed as anybody would, with each Python that is promised and that this machine has."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.dist import uv, version_of
from tests.pythons import pythons_of
from tests.release.conftest import Built

# the first of all also fetches what nodectl depends on
pytestmark = pytest.mark.timeout(900)

_ROOT = Path(__file__).resolve().parent.parent.parent
OLDEST = "3.11"
PYTHONS = (OLDEST, "3.12", "3.13", "3.14", "3.15")
# command → what it prints
COMMANDS: dict[tuple[str, ...], str] = {
    ("nodectl", "--version"): "nodectl ",
    ("nodectl", "--help"): "provision",
    ("nodectl", "profile", "list"): "article-20g",
    ("nodectl", "lab", "--help"): "up",
    ("nodectl", "provision", "--help"): "--check",
    ("ansible-doc", "--type", "module", "nodectl.fleet.kernel_settings"): "nodectl.fleet.kernel_settings",
}
# whatever Python starts there notes which files of the checkout it opens
_WATCH = """
import os, sys
def note(event, arguments, beside=({beside!r}), log={log!r}):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith({root!r} + "/"):
        if not str(arguments[0]).startswith(beside):
            os.write(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), (str(arguments[0]) + "\\n").encode())
sys.addaudithook(note)
"""


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


def installed(python: str, what: Path, folder: Path) -> Place:
    """`what` and all it depends on, with that Python."""
    environment = folder / "environment"
    uv("venv", "--quiet", "--python", python, str(environment))
    uv("pip", "install", "--quiet", "--python", str(environment / "bin" / "python"), str(what))
    env = {"HOME": str(folder), "PATH": f"{environment}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    return Place(environment, env)


@pytest.mark.parametrize("version", PYTHONS)
def test_wheel_and_sdist_run_with_each_python(version: str, built: Built, tmp_path: Path) -> None:
    python = next(iter(pythons_of(version)), None)
    if python is None:
        assert version != OLDEST, f"Python {OLDEST}, the oldest that nodectl promises, is not on this machine"
        pytest.skip(f"no Python {version} on this machine")
    place = installed(python, built.wheel, tmp_path)
    (site,) = place.environment.glob("lib/python3.*/site-packages")
    opened = tmp_path / "opened"
    beside = (str(tmp_path), str(_ROOT / ".cache"))
    (site / "sitecustomize.py").write_text(_WATCH.format(beside=beside, log=str(opened), root=str(_ROOT)))

    for argv, shown in COMMANDS.items():
        assert shown in place.run(*argv), argv
    assert place.run("nodectl", "--version") == f"nodectl {version_of(built.wheel)}\n"
    recording = site / "nodectl" / "data" / "recordings" / "h100-8"
    health = json.loads(place.run("nodectl", "--output", "json", "--replay", str(recording), "health"))
    assert {found["host"] for found in health["findings"]} == {"node01"}
    assert not opened.exists() or opened.read_text() == ""

    from_source = installed(python, built.sdist, tmp_path / "sdist")
    assert from_source.files() == place.files()
    assert from_source.run("nodectl", "--version") == f"nodectl {version_of(built.wheel)}\n"

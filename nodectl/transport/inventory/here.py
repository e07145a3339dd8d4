"""This machine as an inventory of one host, for an operator who names none, or names this machine alone."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from nodectl.common import node_paths
from nodectl.common.files import replace_file
from nodectl.common.paths import state_dir

NAME = "localhost"
_TEXT = f"""\
# written by nodectl: this machine, reached by no SSH. profiles/, locks/ and checks.d/ are looked for beside this file
all:
  hosts:
    {NAME}:
      ansible_connection: local
      nodectl_stack: none
"""
# apt's and dnf's modules of Python are those of the system's interpreter, whatever PATH has before it
_SYSTEM_PYTHON = Path("/usr/bin/python3")


def is_here(name: str) -> bool:
    """Return whether a host of this name is this machine."""
    own = socket.gethostname()
    return name in {NAME, "127.0.0.1", "::1", own, own.partition(".")[0]}


def lists_here(source: str) -> bool:
    """Return whether `source` is no more than names of this machine, as `localhost,`."""
    names = [name.strip() for name in source.split(",") if name.strip()]
    return bool(names) and all(map(is_here, names))


def kept(name: str) -> Path:
    """Return the path of a file that nodectl keeps for work on this machine, in the state folder."""
    folder = state_dir() / "this-machine"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / name


def inventory_of_here() -> str:
    """Return the path of an inventory that holds this machine alone."""
    path = kept("hosts.yml")
    text = _TEXT + f"      ansible_python_interpreter: {_SYSTEM_PYTHON}\n" * _SYSTEM_PYTHON.exists()
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        replace_file(path, text)
    return str(path)


def environment() -> str:
    """Return the Python environment of jobs and probes on this machine, by its folder.

    The active one (venv, conda); where there is none, or it is nodectl's own, the first with torch of the nearest
    `.venv`, PATH's, nodectl's own and the one that `provision` makes.
    """
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    if active and Path(active) != Path(sys.prefix):
        return active
    return next((str(place) for place in _places() if _has_torch(place)), active or node_paths.VENV)


def _places() -> Iterator[Path]:
    above = [folder / ".venv" for folder in (Path.cwd(), *Path.cwd().parents)]
    # another login's would run with our rights
    yield from [place for place in above if place.is_dir() and place.stat().st_uid in {0, os.geteuid()}][:1]
    if torchrun := shutil.which("torchrun"):
        yield Path(torchrun).absolute().parents[1]
    yield from (Path(sys.prefix), Path(node_paths.VENV))


def _has_torch(place: Path) -> bool:
    return all(os.access(place / "bin" / name, os.X_OK) for name in ("python", "torchrun"))

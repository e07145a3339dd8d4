"""This machine as an inventory of one host, for an operator who names none, or names this machine alone."""

from __future__ import annotations

import socket
from pathlib import Path

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


def inventory_of_here() -> str:
    """Return the path of an inventory that holds this machine alone; it lies in the state folder."""
    path = state_dir() / "this-machine" / "hosts.yml"
    text = _TEXT + f"      ansible_python_interpreter: {_SYSTEM_PYTHON}\n" * _SYSTEM_PYTHON.exists()
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, text)
    return str(path)

"""This machine as an inventory of one host, for an operator who names none, or names this machine alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nodectl.common import node_paths
from nodectl.common.access import Access
from nodectl.common.files import replace_file
from nodectl.common.paths import state_dir

NAME = "localhost"
_TEXT = """\
# written by nodectl: this machine, reached by no SSH. profiles/, locks/ and checks.d/ are looked for beside this file
all:
  hosts:
    "localhost":
"""
_VARIABLES = {"ansible_connection": "local", "nodectl_stack": "none"}
# where Ansible finds settings, hosts and variables that nobody names
_READ_BY_ANSIBLE = ("ansible.cfg", "~/.ansible.cfg", "/etc/ansible/ansible.cfg", "/etc/ansible/hosts")
_VARIABLE_FOLDERS = ("group_vars", "host_vars")
# apt's and dnf's modules of Python are those of the system's interpreter, whatever PATH has before it
_SYSTEM_PYTHON = Path("/usr/bin/python3")
# inventory/hosts.yml of the source tree, whose hosts are nobody's until somebody edits it
_EXAMPLE_SHA256 = "3f30f8dd6d3bbd969c97fbc9e2eb157a6f7608bbf13f49b79eaf6704f84fb886"


def is_here(name: str) -> bool:
    """Return whether a host of this name is this machine."""
    own = socket.gethostname()
    return name in {NAME, "127.0.0.1", "::1", own, own.partition(".")[0]}


def lists_here(source: str) -> bool:
    """Return whether `source` is no more than names of this machine, as `localhost,`."""
    names = [name.strip() for name in source.split(",") if name.strip()]
    return bool(names) and all(map(is_here, names))


def is_example(source: str) -> bool:
    """Return whether `source` is the example inventory of the source tree, as it was shipped."""
    path = Path(source)
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == _EXAMPLE_SHA256


def kept(name: str) -> Path:
    """Return the path of a file that nodectl keeps for work on this machine, in the state folder."""
    folder = state_dir() / "this-machine"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / name


def inventory_of_here() -> str:
    """Return the path of an inventory that holds this machine alone."""
    path = kept("hosts.yml")
    text = _TEXT + "".join(f"      {name}: {value}\n" for name, value in variables().items())
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        replace_file(path, text)
    return str(path)


def variables() -> dict[str, str]:
    """Return what the inventory says of this machine."""
    return _VARIABLES | ({"ansible_python_interpreter": str(_SYSTEM_PYTHON)} if _SYSTEM_PYTHON.exists() else {})


def only_here(sources: Sequence[str], access: Access | None) -> bool:
    """Return whether this machine is meant, and there is nothing that Ansible would have to read."""
    # nodectl itself says where Ansible has its temporary files
    said = {name for name in os.environ if name.startswith("ANSIBLE_")} - {"ANSIBLE_LOCAL_TEMP"}
    if said or (access is not None and access.arguments()):
        return False
    if sources and (len(sources) > 1 or not lists_here(sources[0]) or os.access(sources[0], os.F_OK)):
        return False
    folders = [folder / name for folder in (Path(), kept("hosts.yml").parent) for name in _VARIABLE_FOLDERS]
    files = [Path(name).expanduser() for name in _READ_BY_ANSIBLE]
    # a folder of another login, as `su` leaves one in, has nothing for this one
    return not any(os.access(path, os.F_OK) for path in (*files, *folders))


def environment() -> str:
    """Return the Python environment of jobs and probes on this machine, by its folder.

    The active one (venv, conda); if there is none, or it is nodectl's own, the first with torch of the nearest
    `.venv`, PATH's, nodectl's own and the one that `provision` makes.
    """
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    if active and Path(active) != Path(sys.prefix):
        return active
    for place in _places():
        if all(os.access(place / "bin" / name, os.X_OK) for name in ("python", "torchrun")):
            return str(place)
    return active or node_paths.VENV


def _places() -> Iterator[Path]:
    above = [folder / ".venv" for folder in (Path.cwd(), *Path.cwd().parents)]
    # another login's would run with our rights
    there = [place for place in above if os.access(place, os.X_OK)]
    yield from [place for place in there if place.stat().st_uid in {0, os.geteuid()}][:1]
    if torchrun := shutil.which("torchrun"):
        yield Path(torchrun).absolute().parents[1]
    yield from (Path(sys.prefix), Path(node_paths.VENV))

"""A box with GPUs (recorded), nodectl typed on it: as root and as a login without sudo, in an empty folder, no sshd."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nodectl as package
from tests.conftest import Cli, LabUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]
_ROOT = Path(package.__file__).parent.parent
_PYTHON = "/usr/bin/python3"
_PLAIN = "setpriv --reuid=4242 --regid=4242 --clear-groups "
_COMMANDS = (
    ("health --unknown ok", 0, "", "3 x RTX 4090, driver 580.95.05"),
    ("topology", 0, "3 x NVIDIA GeForce RTX 4090", ""),
    ("probe memory --duration 0.2", 0, "memory: ok", ""),
    ("accept --level quick --dry-run", 0, "only one host is selected", ""),
    ("tune trial --profiles stock,consumer-pcie --yes --budget 2", 2, "", "--budget"),
    ("report -o box.html", 0, "box.html", ""),
    ("launch --engine command -- id -u", 0, "", "job finished"),
)
_OF_ROOT = (("tune trial --profiles stock,consumer-pcie", 2, "", "measured: memory, training;"),)
_OF_PLAIN = (
    ("tune trial --profiles stock,consumer-pcie --yes", 2, "", "this needs root on localhost"),
    ("provision --yes --tags limits", 2, "", "this needs root on localhost"),
    ("record taken", 0, "taken: localhost", "nodectl sudoers"),
)


@pytest.fixture(scope="module")
def box(nodectl: Cli, lab_machine: None, cli_env: dict[str, str]) -> Iterator[LabUnderTest]:
    """A host that wears a recording, with nodectl and what it imports in the lab's share."""
    version = "import sys; print(sys.version_info[:2])"
    found = subprocess.run([_PYTHON, "-c", version], capture_output=True, text=True, check=False).stdout.strip()
    if found != str(sys.version_info[:2]):
        pytest.skip(f"{_PYTHON} is {found or 'not there'}, and nodectl's packages are those of {sys.version_info[:2]}")
    name = f"box-{os.getpid()}"
    share = Path(cli_env["XDG_CACHE_HOME"]) / "nodectl" / "lab-share" / name
    packages = next(path for path in map(Path, sys.path) if (path / "click").is_dir())
    try:
        shutil.copytree(packages, share / "packages", copy_function=os.link, symlinks=True)
        for folder in ("nodectl", "roles", "plugins", "ansible_collections"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(_ROOT / folder, share / folder, copy_function=os.link, symlinks=True, ignore=ignored)
        inventory = nodectl("lab", "up", "-n", "1", "--as", "rtx4090-3", "--name", name).stdout.strip()
        yield LabUnderTest(inventory, {}, (name,), str(Path(inventory).with_name("ssh_config")))
    finally:
        nodectl("lab", "down", "--name", name)
        shutil.rmtree(share)


@pytest.mark.parametrize("become", ["", _PLAIN], ids=["root", "plain"])
def test_each_command_works_or_says_what_is_missing(box: LabUnderTest, become: str) -> None:
    share = f"/srv/nodectl/{box.hosts[0]}"
    home = "/tmp/plain" if become else "/tmp/root"
    env = f"env -i HOME={home} PATH=$PATH PYTHONPATH={share}:{share}/packages"
    box.ssh("node01", f"mkdir -p {home}/empty; chown -R {4242 if become else 0} {home}")
    for words, status, out, err in (*_COMMANDS, *(_OF_PLAIN if become else _OF_ROOT)):
        # a network of its own, with loopback alone: the lab's sshd cannot be reached
        typed = f"ip link set lo up; cd {home}/empty; {become}{env} {_PYTHON} -m nodectl {words}"
        said = box.ssh("node01", f"unshare --net sh -c {shlex.quote(typed)} </dev/null; echo status $?")
        assert f"status {status}" in said and out in said and err in said, f"{words}: {said}"
        assert said.count("this machine: 3 x RTX 4090") == 1 and "Traceback" not in said, said

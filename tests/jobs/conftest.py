"""Lab hosts on which torchrun starts real ranks over gloo."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from tests.jobs.deaths import DMESG, GROUP, LAUNCHER, LEAVE_GROUPS, MAKE_VENV, MOUNT_GROUPS, VENV, Lab

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prepared(lab4: Any) -> Iterator[Any]:
    """The launch script and torch on each host; taken away after that."""
    if not (Path.home() / ".cache").exists() or "lib" not in lab4.ssh(lab4.hosts[0], "ls /srv/nodectl/venv 2>&1"):
        pytest.skip("the lab's share holds no torch: `make test` puts it there")
    text = (_ROOT / "roles/launcher/templates/launch.sh.j2").read_text()
    rendered = Environment(autoescape=False).from_string(text).render(profiles="test", venv=VENV) + "\n"  # noqa: S701
    for host in lab4.hosts[:3]:
        place = f"mkdir -p {Path(LAUNCHER).parent} && cat > {LAUNCHER} && chmod 755 {LAUNCHER}"
        ssh = ["ssh", "-F", lab4.ssh_config, host]
        subprocess.run([*ssh, place], input=rendered, text=True, check=True)
        subprocess.run([*ssh, MAKE_VENV], check=True)
    subprocess.run(["ssh", "-F", lab4.ssh_config, lab4.hosts[1], MOUNT_GROUPS], check=False)
    yield lab4
    subprocess.run(["ssh", "-F", lab4.ssh_config, lab4.hosts[1], LEAVE_GROUPS], check=False)


@pytest.fixture
def lab(prepared: Any, nodectl: Any, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(prepared, nodectl, tmp_path)
    yield made
    nodectl("lab", "heal", "--name", prepared.status["name"])
    made.run("jobs", "stop", "last")
    made.run("jobs", "clean")
    prepared.ssh(made.hosts[1], f"rm -f /tmp/eat {DMESG}")
    if GROUP.is_dir():
        GROUP.rmdir()

"""playbooks/upgrade.yml on three lab hosts: a host that fails ends it, is restored, and a second run continues."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.common.resources import share_dir
from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("lab_machine")]
_NAME = f"upgrade-{os.getpid()}"
_HOSTS = ("node01", "node02", "node03")
_FILE = "/etc/security/limits.d/90-nodectl.conf"
# a stack without torch: an acceptance tries health and memory bandwidth, which is quick
_STACK = ("-e", "nodectl_stack=none")


@pytest.fixture
def fleet(cli_env: dict[str, str], tmp_path: Path) -> Iterator[Cli]:
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(tmp_path / "state")})
    with cli.lab(_NAME, len(_HOSTS)) as lab:
        cli("-i", lab.inventory, "init", str(tmp_path / "fleet"), "--from", ",".join(_HOSTS))
        yield Cli({**cli.env, "ANSIBLE_INVENTORY": str(tmp_path / "fleet" / "hosts.yml")})


def changed(cli: Cli) -> set[str]:
    """Return the hosts that have the file of the upgrade."""
    shown = json.loads(cli("--output", "json", "exec", "--", "ls", _FILE, check=False).stdout)
    return {row["host"] for row in shown["results"] if row["exit_status"] == 0}


def test_a_host_that_fails_ends_the_upgrade_and_a_second_run_continues(fleet: Cli) -> None:
    upgrade = ("provision", "--upgrade", "--yes", "--tags", "limits", *_STACK)
    # figures of lab hosts scatter
    loose = ("-e", "upgrade_tolerance=90")
    refused = fleet(*upgrade, *loose, check=False, timeout=300)
    assert refused.returncode == 1 and "node01 has no accepted figures" in refused.stderr and not changed(fleet)

    fleet("accept", "--level", "quick", *_STACK, timeout=300)
    fleet("lab", "fault", "--name", _NAME, "clock", "node02")
    stopped = fleet(*upgrade, *loose, check=False, timeout=600)
    assert stopped.returncode == 1 and "node02  rejected" in stopped.stderr, stopped.stderr
    assert changed(fleet) == {"node01", "node02"}
    restore = re.search(r"`nodectl (-i \S+ rollback -l node02 --to start)`", stopped.stderr)
    assert restore, stopped.stderr
    fleet(*shlex.split(restore[1]), "--yes", timeout=300)
    assert changed(fleet) == {"node01"}

    fleet("lab", "heal", "--name", _NAME, "node02")
    # plain Ansible continues what `nodectl provision` began
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    options = ["--tags", "limits", *_STACK, *loose]
    done = subprocess.run(
        [program, str(share_dir() / "playbooks" / "upgrade.yml"), *options],
        env={**os.environ, **fleet.env}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert changed(fleet) == set(_HOSTS)
    # node01 was accepted with what it has
    assert "skipping: [node01]" in done.stdout.partition("TASK [Measure it]")[2].partition("TASK")[0]

"""A variable of a role that an inventory sets is what the host gets, and what health and `profile show` expect."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from nodectl.common.resources import collections_dir
from tests.playbooks import ansible_playbook
from tests.provision.conftest import Fleet

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TAGS = ("--tags", "limits,kernel_settings,nccl_env")
# where it stands → what it says; a profile says each of them otherwise, or not at all
SETTING = "net.ipv4.tcp_fin_timeout"
PLACES = {
    "group_vars/all.yml": {"limits_nofile": 65536},
    "group_vars/lab.yml": {"nccl_env_variables": {"NCCL_DEBUG": "WARN"}},
    "host_vars/node01.yml": {"kernel_settings_wanted": [{"key": SETTING, "value": "61", "why": "a test"}]},
}
EXTRA = ("-e", '{"limits_memlock": "4194304"}')
APPLIED = (
    f"grep -h memlock /etc/security/limits.d/90-nodectl.conf; grep -h nofile /etc/security/limits.d/90-nodectl.conf;"
    f" grep ^NCCL /etc/nccl.conf; cat /proc/sys/{SETTING.replace('.', '/')}"
)


def plain(host: Fleet, *options: str) -> subprocess.CompletedProcess[str]:
    """An operator's ansible-playbook, with no settings of ours."""
    env = {**os.environ, **host.cli.env, "ANSIBLE_COLLECTIONS_PATH": str(collections_dir())}
    folder = Path(host.inventory).parent
    return ansible_playbook("-i", host.inventory, "nodectl.fleet.site", *options, env=env, cwd=folder)


def test_the_inventory_wins_by_either_way_and_health_agrees(fleet: Callable[..., Fleet]) -> None:
    host = fleet("node01")
    folder = Path(host.inventory).parent
    for name, variables in PLACES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(yaml.safe_dump(variables))
    done = plain(host, *TAGS, *EXTRA)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    applied = host.lab.ssh("node01", APPLIED)
    assert applied.count("memlock 4194304") == 2 and applied.count("nofile 65536") == 2, applied
    assert applied.splitlines()[-2:] == ["NCCL_DEBUG=WARN", "61"], applied
    # the end of it judges as health does
    assert host.changed("provision", "--yes", *TAGS, *EXTRA) == {0}
    shown = host.run("profile", "show", "node01", *EXTRA)["values"]
    origins = {row["origin"] for path, row in shown.items() if path.startswith(("tuning.nccl", "tuning.sysctl"))}
    assert origins == {"nccl_env_variables", "kernel_settings_wanted"}
    assert [shown[f"tuning.limits.{name}"]["value"] for name in ("memlock", "nofile")] == ["4194304", "65536"]
    host.run("rollback", "--to", "start", "--yes")


def test_what_is_installed_is_not_said_beside_the_profiles(fleet: Callable[..., Fleet]) -> None:
    host = fleet("node01")
    folder = Path(host.inventory).parent / "group_vars"
    folder.mkdir()
    (folder / "all.yml").write_text(json.dumps({"pytorch_requirements": ["torch==2.0"]}))
    done = plain(host, "--check", *TAGS)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2 and "pytorch_requirements is set for this host" in said, said[-3000:]
    assert "in nodectl_overrides, {stack: {torch: …}}" in said


def test_a_stack_without_torch_has_the_launch_script(fleet: Callable[..., Fleet]) -> None:
    host = fleet("node01", nodectl_stack="none")
    assert host.changed("provision", "--tags", "launcher") != {0}
    host.run("launch", "--engine", "command", "--", "true")
    host.run("rollback")

"""Roles in somebody else's playbook: each looks at the host by itself, and refuses what it must."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir
from tests.conftest import LabUnderTest
from tests.playbooks import ansible_playbook
from tests.roles.conftest import Play

DRIVER = {"nvidia_driver_branch": "580", "nvidia_driver_flavour": "open"}
REPOSITORY = {
    "nvidia_repository_base_url": "http://127.0.0.1:9/never-asked",
    "nvidia_repository_key_fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC",
    "nvidia_repository_distribution": "ubuntu2404",
    "nvidia_repository_architecture": "x86_64",
}


def play(role: str, **variables: Any) -> str:
    """A playbook that knows the role and its variables, and nothing of nodectl."""
    roles = [{"role": f"nodectl.fleet.{role}", **variables}]
    return yaml.safe_dump([{"hosts": "all", "become": True, "gather_facts": False, "roles": roles}])


@pytest.fixture
def without_nodectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli_env: dict[str, str]) -> None:
    """Ansible's Python cannot import nodectl."""
    (tmp_path / "nodectl.py").write_text("raise ImportError(\"No module named 'nodectl'\")\n")
    monkeypatch.setitem(cli_env, "PYTHONPATH", f"{tmp_path}:{cli_env['PYTHONPATH']}")


@pytest.mark.slow
@pytest.mark.lab
def test_the_driver_of_nvidias_installer_is_not_installed_over(
    lab4: LabUnderTest, ansible_play: Callable[..., Play]
) -> None:
    host = lab4.hosts[0]
    lab4.ssh(host, "touch /usr/bin/nvidia-uninstall && chmod +x /usr/bin/nvidia-uninstall")
    try:
        done = ansible_play(play("nvidia_driver", **DRIVER), lab4, host, check=False)
        assert "NVIDIA's own installer put a driver here" in done.text and "failed=1" in done.text, done.text
        assert "nvidia_driver_mode to keep" in done.text and done.changed == 0
    finally:
        lab4.ssh(host, "rm /usr/bin/nvidia-uninstall")


@pytest.mark.lab
def test_the_driver_role_knows_its_packages_without_the_python_package_nodectl(
    lab4: LabUnderTest, ansible_play: Callable[..., Play], without_nodectl: None
) -> None:
    named = {**DRIVER, "nvidia_driver_packages": ["nvidia-open-580"]}
    for variables, refusal in ({}, "set nvidia_driver_branch"), (named, "has nvidia-open-580"):
        done = ansible_play(play("nvidia_driver", **variables), lab4, lab4.hosts[0], check=False)
        assert refusal in done.text and done.changed == 0, done.text


@pytest.mark.slow
@pytest.mark.lab
def test_a_repository_of_another_distribution_is_refused_before_its_key_is_fetched(
    lab4: LabUnderTest, ansible_play: Callable[..., Play]
) -> None:
    done = ansible_play(play("nvidia_repository", **REPOSITORY), lab4, lab4.hosts[0], check=False)
    assert "nvidia_repository_distribution is ubuntu2404" in done.text and "this host is debian12 on" in done.text
    assert "127.0.0.1:9" not in done.text and "failed=1" in done.text and done.changed == 0


@pytest.mark.slow
@pytest.mark.lab
def test_more_files_than_the_kernel_gives_are_never_written(
    lab4: LabUnderTest, ansible_play: Callable[..., Play]
) -> None:
    host, file = lab4.hosts[1], "/etc/security/limits.d/90-nodectl.conf"
    most = int(lab4.ssh(host, "cat /proc/sys/fs/nr_open"))
    wanted: dict[str, Any] = {"limits_memlock": "unlimited", "limits_nofile": str(2 * most)}
    later = [{"key": "fs/nr_open", "value": str(2 * most)}]
    refused = ansible_play(play("limits", **wanted), lab4, host, check=False)
    assert "logins fail" in refused.text and refused.changed == 0
    assert lab4.ssh(host, f"cat {file} 2>/dev/null || true") == ""
    done = ansible_play(play("limits", **wanted), lab4, host, kernel_settings_wanted=later)
    assert f"{2 * most} is above fs.nr_open, {most}, which is written instead" in done.text, done.text
    written = lab4.ssh(host, f"cat {file} /etc/systemd/system.conf.d/90-nodectl.conf")
    assert written.count(f"nofile {most}\n") == 2 and f"DefaultLimitNOFILE={most}" in written
    assert ansible_play(play("limits", **wanted), lab4, host, kernel_settings_wanted=later).changed == 0
    lab4.ssh(host, f"rm {file} /etc/systemd/system.conf.d/90-nodectl.conf")


def test_who_passes_over_the_first_tasks_is_told_what_they_are_for(cli_env: dict[str, str]) -> None:
    task = "nodectl.fleet.kernel_settings : Set the kernel's values, in the drop-in and live"
    words = ["-i", "here,", "-c", "local", "--check", str(share_dir() / "playbooks" / "tune.yml")]
    env = {**os.environ, **cli_env, "ANSIBLE_CONFIG": str(share_dir() / "ansible.cfg")}
    done = ansible_playbook(*words, "--start-at-task", task, env=env)
    assert done.returncode == 2 and "changed=0" in done.stdout
    assert "--start-at-task passes over the tasks that resolve the profiles" in done.stdout + done.stderr

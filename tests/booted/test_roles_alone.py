"""Each role alone in a playbook of ten lines, on booted Debian 12, by plain Ansible: it does its job, once."""

from __future__ import annotations

import ensurepip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.common.node_paths import LAB_SHARE
from nodectl.profiles.resolve import load_stacks
from tests.apt_repo import build
from tests.booted.conftest import STATE
from tests.booted.fleet import Fleet
from tests.booted.needs import CONTAINER_PROGRAMS, skip_unless_possible
from tests.booted.sessions import containers
from tests.collection.conftest import ENDS, Controller, artifact, controller  # noqa: F401  fixtures

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(1800)]

MOUNT = "/srv/nvidia"
TORCH = load_stacks()["cpu"].torch
# role: at most one variable, a command on the host, and what the command prints once the role has run
ROLES: dict[str, tuple[dict[str, object], str, str]] = {
    "limits": ({}, "cat /etc/security/limits.d/90-nodectl.conf", "nofile 1048576"),
    "kernel_settings": (
        {"kernel_settings_wanted": [{"key": "net.ipv4.tcp_fin_timeout", "value": "61"}]},
        "cat /proc/sys/net/ipv4/tcp_fin_timeout",
        "61",
    ),
    "nccl_env": ({"nccl_env_variables": {"NCCL_DEBUG": "WARN"}}, "cat /etc/nccl.conf", "NCCL_DEBUG=WARN"),
    "time_sync": ({}, "systemctl is-active systemd-timesyncd chrony || true", "active"),
    "rdma": ({"rdma_devices": True}, "dpkg -s rdma-core | grep Status", "ok installed"),
    "nvidia_driver": ({"nvidia_driver_branch": "580"}, "apt-mark showhold", "cuda-drivers-580"),
    "cuda": ({"cuda_package": "cuda-toolkit-12-8"}, "/usr/local/cuda-12.8/bin/nvcc --version", "release 12.8"),
    "cudnn": ({"cudnn_packages": {"libcudnn9-cuda-12": "9.10.2.21-1"}}, "apt-mark showhold", "libcudnn9-cuda-12"),
    "dcgm": ({"dcgm_packages": ["datacenter-gpu-manager-4-cuda12"]}, "systemctl is-enabled nvidia-dcgm", "enabled"),
    "container_toolkit": (
        {"container_toolkit_packages": ["nvidia-container-toolkit"]}, "apt-mark showhold", "nvidia-container-toolkit",
    ),
    "python": ({}, "/opt/nodectl/bin/uv --version", "uv "),
    "pytorch": (
        {"pytorch_requirements": [f"torch=={TORCH}"]},
        "/opt/nodectl/venv/bin/python -c 'import torch; print(torch.__version__)'",
        str(TORCH),
    ),
    "launcher": ({}, "/opt/nodectl/bin/nodectl-launch --help", "usage"),
}  # fmt: skip


@pytest.fixture(scope="module")
def host(booted_cache: None, lab_share: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Fleet, str]]:
    """A clean system, and an inventory that has a mirror's addresses instead of the public ones."""
    skip_unless_possible(CONTAINER_PROGRAMS | {"gpg": "gnupg"}, "booted containers with a signed repository")
    repository = build(tmp_path_factory.mktemp("nvidia") / "repository", ["debian12"])
    shown = {lab_share: LAB_SHARE, repository.base_url_path: MOUNT}
    with containers(STATE / "booted", ("gpu01",), shown, "bookworm") as fleet:
        yield (
            fleet,
            fleet.inventory(
                nvidia_repository_base_url=f"file://{MOUNT}",
                nvidia_repository_keyring=str(repository.key_file),
                pytorch_wheelhouse=f"{LAB_SHARE}/wheels",
            ),
        )


@pytest.fixture
def with_pip(controller: Controller) -> Controller:  # noqa: F811
    """A controller without uv, whose pip fetches it."""
    (wheel,) = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    return replace(controller, env={**controller.env, "PYTHONPATH": str(wheel)})


@pytest.mark.parametrize("controller", list(ENDS), indirect=True)
@pytest.mark.parametrize("role", list(ROLES))
def test_the_role_alone_does_its_job_once(
    role: str, with_pip: Controller, host: tuple[Fleet, str], tmp_path: Path
) -> None:
    (variables, command, shown), (fleet, inventory) = ROLES[role], host
    assert len(variables) <= 1
    roles = [{"role": f"nodectl.fleet.{role}", **variables}]
    (tmp_path / "theirs.yml").write_text(json.dumps([{"hosts": "all", "become": True, "roles": roles}]))
    first, second = (with_pip.run(tmp_path, "ansible-playbook", "-i", inventory, "theirs.yml") for _ in range(2))
    assert shown in fleet["gpu01"].out(command), first
    assert re.search(r"changed=0 .*failed=0", second), second

"""What this machine must have before anything can boot on it, and the packages that bring it."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

import pytest

# program → Debian and Ubuntu package
CONTAINER_PROGRAMS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "dpkg-deb": "dpkg",
}
MACHINE_PROGRAMS = {
    **CONTAINER_PROGRAMS,
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mke2fs": "e2fsprogs",
}


def search_path() -> str:
    """PATH with the folders of root's programs, which a login without `-` lacks."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def missing_packages(programs: dict[str, str]) -> list[str]:
    """Packages to install before `programs` are all there."""
    path = search_path()
    return sorted({package for program, package in programs.items() if not shutil.which(program, path=path)})


def skip_unless_possible(programs: dict[str, str], what: str) -> None:
    """Skip the test, with the reason, where this machine cannot boot `what`."""
    if os.geteuid() != 0:
        pytest.skip(f"{what} need root")
    if not Path("/etc/debian_version").exists():
        pytest.skip(f"{what} are made from this machine's own apt sources, and it has none")
    if platform.machine() != "x86_64" and "qemu-system-x86_64" in programs:
        pytest.skip(f"{what} are x86_64 with no acceleration, this machine is {platform.machine()}")
    missing = missing_packages(programs)
    if missing:
        pytest.skip(f"{what} need packages: {' '.join(missing)} (`make test-booted` installs them)")

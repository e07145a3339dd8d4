"""Root file systems of this machine's distribution, made once and kept in the cache: one to boot, and a bare one."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nodectl.common.paths import cache_dir
from tests.booted.needs import search_path
from tests.booted.pool import POOL, write_index
from tests.booted.sources import apt_options, codename, own_sources

_BUILD_S = 1500
_LOCK_WAIT_NOTE = "waiting for another session that builds it"

# what a small server of the distribution holds; roles have to bring the rest themselves
INSTALLED = (
    "systemd", "systemd-sysv", "systemd-timesyncd", "libpam-systemd", "dbus", "udev", "kmod", "procps",
    "openssh-server", "sudo", "ifupdown", "iproute2", "iputils-ping", "ca-certificates", "python3", "python3-apt",
)  # fmt: skip
# what a person adds to the smallest system before README.md's commands
BARE = ("ca-certificates", "pipx")
# what roles may install with apt inside a booted system, and a kernel for the machines; downloaded, not installed
INSTALLABLE = (
    "rdma-core", "ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "infiniband-diags", "libibverbs-dev",
    "chrony", "ethtool", "pciutils", "numactl", "irqbalance", "unattended-upgrades", "gnupg", "libaio-dev",
    "ninja-build", "g++", "make", "git", "python3-venv", "python3-debian", "linux-image-amd64", "busybox-static",
)  # fmt: skip
# Debian's own driver, and the kernel that DKMS builds it for
DRIVER, KERNEL = ("nvidia-kernel-dkms", "nvidia-smi", "libcuda1"), ("linux-image-amd64", "linux-headers-amd64")


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides what the image holds; `version` changes with the steps below."""

    release: str
    sources: tuple[str, ...]
    installed: tuple[str, ...] = INSTALLED
    installable: tuple[str, ...] = INSTALLABLE
    version: int = 1

    @property
    def key(self) -> str:
        """Names the image in the cache."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def folder() -> Path:
    """Where images are kept."""
    place = cache_dir() / "booted"
    place.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def alone(place: Path, name: str) -> Iterator[None]:
    """Two sessions at once: the second waits, and finds it made."""
    with (place / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: {_LOCK_WAIT_NOTE}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def root_image(release: str = "", driver: bool = False) -> Path:
    """The root file system as a folder, of this machine's release or of another of its distribution.

    It is the lower layer of every booted system, and never written. With `driver` it can install Debian's own.
    """
    own, name = own_sources(release=release), release or codename()
    if not driver:
        return _made("root", Recipe(name, tuple(own)), _finish)
    sources = tuple(line.partition(" main")[0] + " main contrib non-free non-free-firmware" for line in own)
    return _made("root", Recipe(name, sources, (*INSTALLED, *KERNEL), (*INSTALLABLE, *DRIVER)), _finish)


def bare_image(release: str) -> Path:
    """The smallest system of a release of this machine's distribution, with pipx."""
    return _made("bare", Recipe(release, tuple(own_sources(release=release)), BARE, ()), _forget_archives)


def _made(kind: str, recipe: Recipe, finish: Callable[[Path], None]) -> Path:
    place = folder()
    image = place / f"{kind}-{recipe.key}"
    with alone(place, image.name):
        if not image.is_dir():
            say(f"making a {recipe.release} system from this machine's apt sources (1 to 3 minutes, kept in {image})")
            staged = place / f"{image.name}.partial"
            shutil.rmtree(staged, ignore_errors=True)
            _bootstrap(recipe, staged)
            finish(staged)
            staged.rename(image)
    return image


def _bootstrap(recipe: Recipe, target: Path) -> None:
    """mmdebstrap, and the packages that a booted system can install without any way to an archive."""
    download = "--yes --download-only --no-install-recommends"
    hooks = [
        f'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get {download} install {" ".join(recipe.installable)}',
        f'mkdir -p "$1{POOL}" && find "$1/var/cache/apt/archives" -name "*.deb" -exec mv -t "$1{POOL}" {{}} +',
    ]
    argv = ["mmdebstrap", "--variant=minbase", "--mode=root", "--format=directory", "--quiet"]
    argv += [f"--include={','.join(recipe.installed)}", "--skip=cleanup/apt/cache"]
    argv += [f"--aptopt={option}" for option in apt_options()]
    argv += [f"--customize-hook={hook}" for hook in hooks if recipe.installable]
    done = subprocess.run(
        [*argv, recipe.release, str(target), *recipe.sources],
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        env={**os.environ, "PATH": search_path(), "LC_ALL": "C.UTF-8"},
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        shutil.rmtree(target, ignore_errors=True)
        raise RuntimeError(f"mmdebstrap ended with {done.returncode}:\n{last}")


def _forget_archives(root: Path) -> None:
    """No archive of this machine's stays in it."""
    apt = root / "etc/apt"
    for old in [apt / "apt.conf.d/99mmdebstrap", *apt.glob("sources.list.d/*"), *root.glob("var/lib/apt/lists/*_*")]:
        old.unlink(missing_ok=True)
    (apt / "sources.list").write_text("")


def _finish(root: Path) -> None:
    """Only the folder of packages as an archive, no key that two systems would share, logins that wait for no name."""
    _forget_archives(root)
    for old in root.glob("etc/ssh/ssh_host_*"):
        old.unlink()
    write_index(root)
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/fstab").write_text("")
    sshd = root / "etc/ssh/sshd_config.d/50-tests.conf"
    sshd.write_text("UseDNS no\nPermitRootLogin prohibit-password\n")
    if (initramfs := root / "etc/initramfs-tools/update-initramfs.conf").exists():  # no container boots one
        initramfs.write_text("update_initramfs=no\n")
    for unit in ("apt-daily.timer", "apt-daily-upgrade.timer"):  # they would hold apt's lock at some time of their own
        _inside(root, "systemctl", "disable", unit)
    for name, groups in (("ops", "sudo"), ("auto", "sudo")):
        _inside(root, "useradd", "--create-home", "--shell", "/bin/bash", "--groups", groups, name)
    free = root / "etc/sudoers.d/auto"
    free.write_text("auto ALL=(ALL) NOPASSWD: ALL\n")
    free.chmod(0o440)
    _inside(root, "apt-get", "-qq", "update")


def _inside(root: Path, *argv: str) -> None:
    """Run a program of the image."""
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["chroot", str(root), *argv], capture_output=True, text=True, env=env, timeout=300, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)} in the image ended with {done.returncode}: {done.stderr.strip()}")


def say(text: str) -> None:
    """On standard error: it takes minutes, and someone may be looking."""
    sys.stderr.write(f"booted: {text}\n")

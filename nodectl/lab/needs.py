"""What this machine must have for a lab, and the packages that bring it."""

import shutil
from pathlib import Path

from nodectl.errors import LabError
from nodectl.lab.base import SSHD
from nodectl.lab.spec import LabSpec

# program: package by family of distributions
_PACKAGES = {
    "sshd": {"debian": "openssh-server", "fedora": "openssh-server", "arch": "openssh", "suse": "openssh-server"},
    "ssh": {"debian": "openssh-client", "fedora": "openssh-clients", "arch": "openssh", "suse": "openssh-clients"},
    "ip": {"debian": "iproute2", "fedora": "iproute", "arch": "iproute2", "suse": "iproute2"},
    "tc": {"debian": "iproute2", "fedora": "iproute-tc", "arch": "iproute2", "suse": "iproute2"},
    "mkfs.ext4": {"debian": "e2fsprogs", "fedora": "e2fsprogs", "arch": "e2fsprogs", "suse": "e2fsprogs"},
}
_INSTALL = {"debian": "apt-get install", "fedora": "dnf install", "arch": "pacman -S", "suse": "zypper install"}


def require(spec: LabSpec) -> None:
    """LabError that names what is missing and how to get it."""
    wanted = ["sshd", "ssh", "ip"]
    wanted += ["tc"] if spec.rate_bits or spec.impaired else []
    wanted += ["mkfs.ext4"] if spec.disk_bytes else []
    missing = [name for name in wanted if not (Path(SSHD).exists() if name == "sshd" else shutil.which(name))]
    if missing:
        family = distribution_family()
        packages = sorted({_PACKAGES[name][family] for name in missing})
        raise LabError(f"this machine has no {', '.join(missing)}", f"{_INSTALL[family]} {' '.join(packages)}")
    if "overlay" not in Path("/proc/filesystems").read_text(encoding="utf-8"):
        raise LabError("this kernel has no overlay file system", "modprobe overlay")


def distribution_family() -> str:
    """`debian`, `fedora`, `arch` or `suse`; debian where it cannot be told."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        return "debian"
    pairs = (line.partition("=")[::2] for line in text.splitlines())
    fields = {key: value.strip('"') for key, value in pairs if key in ("ID", "ID_LIKE")}
    known = {"ubuntu": "debian", "rhel": "fedora", "centos": "fedora"} | {name: name for name in _INSTALL}
    words = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".split()
    return next((known[word] for word in words if word in known), "debian")

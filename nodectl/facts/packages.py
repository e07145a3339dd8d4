"""Packages of NVIDIA and of RDMA that are installed, by dpkg or rpm, with what keeps them at their version."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nodectl.common import node_paths
from nodectl.facts.base import text_fact
from nodectl.model.recording import Command

_PATTERNS = (
    *("cuda-toolkit-*", "cuda-drivers*", "nvidia-open*", "nvidia-fabricmanager*", "libcudnn*", "libnccl*"),
    *("datacenter-gpu-manager*", "rdma-core", "ibverbs-utils", "perftest", "infiniband-diags", "doca-ofed"),
    # as RHEL and NVIDIA's repositories for it have them
    *("nvidia-fabric-manager", "libibverbs-utils"),
)
# as in plugins/module_utils/apt/packages.py: a driver's part has such a name and a driver's version
DRIVER_FAMILY = (
    *("cuda-drivers*", "firmware-nvidia-*", "lib*-nvidia*", "libcuda1", "libcudadebugger1", "libnvcuvid1"),
    *("libnvidia-*", "libnvoptix1", "libnvsdm*", "libxnvctrl*", "nvidia-*", "nvlink5*", "xserver-xorg-video-nvidia*"),
)
# as in plugins/module_utils/dnf/packages.py: what has another name with rpm
RPM_FAMILY = ("kmod-nvidia-*", "libXNVCtrl*", "xorg-x11-nvidia*")
DRIVER_MODULES = ("linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*")
DRIVER_VERSION = r"^[3-9][0-9][0-9]\.[0-9][0-9]"
_LOCKS = "/etc/dnf/plugins/versionlock.list"
_RPM_FORM = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"
# dpkg-query ends badly where a pattern fits nothing, and says so; rpm's lines are those with tabs
_SHOW = f"""\
[ -d {node_paths.ROOT} ] || exit 3
if command -v dpkg-query >/dev/null && [ -e /var/lib/dpkg/status ]; then
  dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Abbrev}}\\n' "$@" 2>/dev/null
  exit 0
fi
command -v rpm >/dev/null || exit 3
rpm -qa --queryformat '{_RPM_FORM}' "$@" {" ".join(f"'{each}'" for each in RPM_FAMILY)}
[ ! -e {_LOCKS} ] || awk '/^[^#!]/ {{ print "lock\\t" $0 }}' {_LOCKS}
exit 0
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; `held` at its version by dpkg's selection, or a lock of dnf's versionlock."""

    name: str
    version: str
    held: bool

    @property
    def is_driver(self) -> bool:
        """A part of the GPU driver, or its fabric manager."""
        if _fits(self.name, DRIVER_MODULES):
            return True
        return _fits(self.name, (*DRIVER_FAMILY, *RPM_FAMILY)) and re.search(DRIVER_VERSION, self.version) is not None


@dataclass(frozen=True, slots=True)
class Packages:
    """Hold those that are wholly installed, by name."""

    installed: Mapping[str, Package]


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _words(packages: Packages) -> str:
    """Return it without the many parts of a driver."""
    named = [package for package in packages.installed.values() if _fits(package.name, _PATTERNS)]
    return ", ".join(f"{package.name} {package.version}" for package in named) or "none"


def _parse(text: str) -> Packages:
    rows = [line.split() for line in text.splitlines()]
    if "\t" in text:
        return Packages(dict(_of_rpm(text)))
    return Packages(
        {row[0]: Package(row[0], row[1], row[2][0] == "h") for row in rows if len(row) == 3 and row[2][1] == "i"}
    )


def _of_rpm(text: str) -> Iterator[tuple[str, Package]]:
    """rpm's packages by name; the version is `version-release`, without an epoch."""
    rows = [line.split("\t") for line in text.splitlines()]
    locks = [row[1] for row in rows if row[0] == "lock" and len(row) == 2]
    for row in rows:
        if len(row) == 4:
            name, epoch, version, arch = row
            held = any(_locks(lock, name, (version, f"{epoch}:{version}"), arch) for lock in locks)
            yield name, Package(name, version, held)


def _locks(lock: str, name: str, versions: tuple[str, ...], arch: str) -> bool:
    """Return it as dnf reads a lock: a package in a version, with or without release, epoch and architecture."""
    spelled = [f"{name}-{text}" for version in versions for text in (version, version.rpartition("-")[0])]
    return lock != name and any(fnmatchcase(text, lock) for each in spelled for text in (each, f"{each}.{arch}"))


FACT = text_fact(
    "packages",
    Command("packages", ("sh", "-c", _SHOW, "sh", *_PATTERNS, *DRIVER_FAMILY, *DRIVER_MODULES)),
    _parse,
    _words,
    absent=f"no {node_paths.ROOT} there, or neither dpkg nor rpm",
    row=508,
    occasion="live",
)

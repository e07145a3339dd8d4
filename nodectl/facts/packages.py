"""Debian packages of NVIDIA and of RDMA that are installed, with their holds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from nodectl.common import node_paths
from nodectl.facts.base import text_fact
from nodectl.model.recording import Command

_PATTERNS = (
    *("cuda-toolkit-*", "cuda-drivers*", "nvidia-open*", "nvidia-fabricmanager*", "libcudnn*", "libnccl*"),
    *("datacenter-gpu-manager*", "rdma-core", "ibverbs-utils", "perftest", "infiniband-diags", "doca-ofed"),
)
# as in plugins/module_utils/apt/packages.py: a driver's part has such a name and a driver's version
DRIVER_FAMILY = (
    *("cuda-drivers*", "firmware-nvidia-*", "lib*-nvidia*", "libcuda1", "libcudadebugger1", "libnvcuvid1"),
    *("libnvidia-*", "libnvoptix1", "libnvsdm*", "libxnvctrl*", "nvidia-*", "nvlink5*", "xserver-xorg-video-nvidia*"),
)
DRIVER_MODULES = ("linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*")
DRIVER_VERSION = r"^[3-9][0-9][0-9]\.[0-9][0-9]"
# dpkg-query ends badly where a pattern fits nothing, and says so
_SHOW = f"""\
[ -d {node_paths.ROOT} ] && command -v dpkg-query >/dev/null || exit 3
dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Abbrev}}\\n' "$@" 2>/dev/null
exit 0
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; `held` at its version by dpkg's selection."""

    name: str
    version: str
    held: bool

    @property
    def is_driver(self) -> bool:
        """A part of the GPU driver, or its fabric manager."""
        if _fits(self.name, DRIVER_MODULES):
            return True
        return _fits(self.name, DRIVER_FAMILY) and re.search(DRIVER_VERSION, self.version) is not None


@dataclass(frozen=True, slots=True)
class Packages:
    """Those that are wholly installed, by name."""

    installed: Mapping[str, Package]


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _words(packages: Packages) -> str:
    """Without the many parts of a driver."""
    named = [package for package in packages.installed.values() if _fits(package.name, _PATTERNS)]
    return ", ".join(f"{package.name} {package.version}" for package in named) or "none"


def _parse(text: str) -> Packages:
    rows = [line.split() for line in text.splitlines()]
    return Packages(
        {row[0]: Package(row[0], row[1], row[2][0] == "h") for row in rows if len(row) == 3 and row[2][1] == "i"}
    )


FACT = text_fact(
    "packages",
    Command("packages", ("sh", "-c", _SHOW, "sh", *_PATTERNS, *DRIVER_FAMILY, *DRIVER_MODULES)),
    _parse,
    _words,
    absent=f"no {node_paths.ROOT} there, or no dpkg",
    row=508,
    occasion="live",
)

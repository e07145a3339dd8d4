"""Debian packages of NVIDIA and of RDMA that are installed, with their holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.common import node_paths
from nodectl.facts.base import Fact, output_unless_missing
from nodectl.model.recording import Command, Recording

_PATTERNS = (
    *("cuda-toolkit-*", "cuda-drivers*", "nvidia-open*", "nvidia-fabricmanager*", "libcudnn*", "libnccl*"),
    *("datacenter-gpu-manager*", "rdma-core", "ibverbs-utils", "perftest", "infiniband-diags", "doca-ofed"),
)
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


@dataclass(frozen=True, slots=True)
class Packages:
    """Those that are wholly installed, by name."""

    installed: Mapping[str, Package]


def _read(recording: Recording) -> Packages:
    text = output_unless_missing(recording, "packages", f"no {node_paths.ROOT} there, or no dpkg")
    rows = [line.split() for line in text.splitlines()]
    found = {row[0]: Package(row[0], row[1], row[2][0] == "h") for row in rows if len(row) == 3 and row[2][1] == "i"}
    return Packages(found)


def _words(packages: Packages) -> str:
    return ", ".join(f"{each.name} {each.version}" for each in packages.installed.values()) or "none"


FACT = Fact(
    "packages",
    (Command("packages", ("sh", "-c", _SHOW, "sh", *_PATTERNS)),),
    _read,
    _words,
    row=508,
    occasion="live",
)

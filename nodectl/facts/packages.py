"""Debian packages of NVIDIA and of RDMA that are installed, with their holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.common import node_paths
from nodectl.facts.base import text_fact
from nodectl.model.recording import Command

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


def _parse(text: str) -> Packages:
    rows = [line.split() for line in text.splitlines()]
    return Packages(
        {row[0]: Package(row[0], row[1], row[2][0] == "h") for row in rows if len(row) == 3 and row[2][1] == "i"}
    )


FACT = text_fact(
    "packages",
    Command("packages", ("sh", "-c", _SHOW, "sh", *_PATTERNS)),
    _parse,
    lambda packages: ", ".join(f"{p.name} {p.version}" for p in packages.installed.values()) or "none",
    absent=f"no {node_paths.ROOT} there, or no dpkg",
    row=508,
    occasion="live",
)

"""The file /etc/nccl.conf: how NCCL reads a line of it."""

from __future__ import annotations

import re

from nodectl.profiles.nccl_variables import why_no_name, why_no_text

# from this version on NCCL finds the GID index of RoCE v2 by itself, and NVIDIA asks not to set it
FINDS_GID_INDEX = "2.21"

# names and numbers of one node's interfaces; the GID index also depends on the addresses that the node holds
_HOST_NAME = re.compile(r"(IB_HCA|IB_GID_INDEX|IB_ADDR_RANGE|SOCKET_IFNAME|OOB_NET_IFNAME|OOB_NET_HCA|TOPO_FILE)\Z")


def is_host_variable(name: str) -> bool:
    """Return whether the value of `name` belongs to one node: a profile for many may not hold it."""
    return _HOST_NAME.match(name.removeprefix("NCCL_")) is not None


def check_name(name: str) -> str:
    """`name`, if NCCL or a plug-in could mean anything by it; ValueError if not."""
    if wrong := why_no_name(name):
        raise ValueError(f"{name!r} is no NCCL variable: {wrong}")
    return name


def check_value(value: str) -> str:
    """`value`, if NCCL would read the very same from its file; ValueError if not."""
    if wrong := why_no_text(value):
        raise ValueError(wrong)
    return value


def version_key(version: str) -> tuple[int, ...]:
    """`2.24.3` as (2, 24, 3); ValueError where it is no version."""
    if not re.fullmatch(r"\d+(\.\d+)*", version):
        raise ValueError(f"{version!r} is no version such as 2.24 or 2.24.3")
    return tuple(int(part) for part in version.split("."))


def finds_gid_index(version: str | None) -> bool:
    """Return whether this NCCL finds the GID index of RoCE v2 by itself, or there is no NCCL to do so."""
    return version is None or version_key(version) >= version_key(FINDS_GID_INDEX)

"""NCCL's variables and the file /etc/nccl.conf; the judge of names and values is the role's, if no nodectl is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from nodectl.common.resources import node_module

_SHARED = node_module("nccl_variables")
MAX_CHARS: int = _SHARED.MAX_CHARS
variables: Callable[[], dict[str, Any]] = _SHARED.variables
variable: Callable[[str], Any] = _SHARED.variable
is_debug_variable: Callable[[str], bool] = _SHARED.is_debug_variable
why_no_name: Callable[[str], str] = _SHARED.why_no_name
why_no_text: Callable[[str], str] = _SHARED.why_no_text
why_no_value: Callable[[str, str], str] = _SHARED.why_no_value
asks_for_ib: Callable[[Mapping[str, str]], bool] = _SHARED.asks_for_ib
is_set: Callable[[Mapping[str, str], str], bool] = _SHARED.is_set
why_not_together: Callable[[Mapping[str, str]], str] = _SHARED.why_not_together

# from this version on NCCL finds the GID index of RoCE v2 by itself, and NVIDIA asks not to set it
FINDS_GID_INDEX = "2.21"

# names and numbers of one node's interfaces; the GID index also depends on the addresses that the node holds
_HOST_NAME = re.compile(r"(IB_HCA|IB_GID_INDEX|IB_ADDR_RANGE|SOCKET_IFNAME|OOB_NET_IFNAME|OOB_NET_HCA|TOPO_FILE)\Z")


def is_host_variable(name: str) -> bool:
    """Return whether the value of `name` belongs to one node: a profile for many may not hold it."""
    return _HOST_NAME.match(name.removeprefix("NCCL_")) is not None


def check_name(name: str) -> str:
    """Return `name`, if NCCL or a plug-in could mean anything by it; ValueError if not."""
    if wrong := why_no_name(name):
        raise ValueError(f"{name!r} is no NCCL variable: {wrong}")
    return name


def check_value(value: str) -> str:
    """Return `value`, if NCCL would read the very same from its file; ValueError if not."""
    if wrong := why_no_text(value):
        raise ValueError(wrong)
    return value


def version_key(version: str) -> tuple[int, ...]:
    """Return `2.24.3` as (2, 24, 3); ValueError if it is no version."""
    if not re.fullmatch(r"\d+(\.\d+)*", version):
        raise ValueError(f"{version!r} is no version such as 2.24 or 2.24.3")
    return tuple(int(part) for part in version.split("."))


def finds_gid_index(version: str | None) -> bool:
    """Return whether this NCCL finds the GID index of RoCE v2 by itself, or there is no NCCL to do so."""
    return version is None or version_key(version) >= version_key(FINDS_GID_INDEX)

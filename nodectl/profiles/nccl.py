"""What may stand in /etc/nccl.conf: how NCCL reads a line, and which variables NVIDIA calls debugging ones."""

from __future__ import annotations

import re

# from this version on NCCL finds the GID index of RoCE v2 by itself, and NVIDIA asks not to set it
FINDS_GID_INDEX = "2.21"
# NCCL cuts names and values at 1023 characters, trims nothing, and knows no quotes
MAX_CHARS = 1023
_NAME = re.compile(r"NCCL_[A-Z0-9_]+\Z")

# NCCL user guide, "Environment variables": the debugging category, "should not be used in production nor retained"
_DEBUG_NAME = re.compile(
    r"(P2P_DISABLE|P2P_LEVEL|P2P_DIRECT_DISABLE|SHM_DISABLE|BUFFSIZE|NTHREADS|(MIN|MAX)_(NCHANNELS|CTAS)"
    r"|IB_(DISABLE|AR_THRESHOLD|QPS_PER_CONNECTION|SPLIT_DATA_ON_QPS|PCI_RELAXED_ORDERING|ADAPTIVE_ROUTING|ECE_ENABLE)"
    r"|NET_GDR_(LEVEL|READ|C2C)|ALGO|PROTO|NVB_DISABLE|PXN_DISABLE|NVLS_ENABLE|DMABUF_ENABLE"
    r"|(CUMEM|MNNVL|RAS|LAUNCH)_.*)\Z"
)

# names and numbers of one node's interfaces; the GID index also depends on the addresses that the node holds
_HOST_NAME = re.compile(r"(IB_HCA|IB_GID_INDEX|IB_ADDR_RANGE|SOCKET_IFNAME|OOB_NET_IFNAME|OOB_NET_HCA|TOPO_FILE)\Z")


def is_host_variable(name: str) -> bool:
    """The value of `name` belongs to one node: a profile for many may not hold it."""
    return _HOST_NAME.match(name.removeprefix("NCCL_")) is not None


def is_debug_variable(name: str) -> bool:
    """`name` is of NCCL's debugging category."""
    return _DEBUG_NAME.match(name.removeprefix("NCCL_")) is not None


def check_name(name: str) -> str:
    """`name`, if NCCL could mean anything by it; ValueError if not."""
    if not _NAME.match(name) or len(name) > MAX_CHARS:
        raise ValueError(f"{name!r} is no NCCL variable: NCCL_ and capital letters, digits, underscores")
    return name


def check_value(value: str) -> str:
    """`value`, if NCCL would read the very same from its file; ValueError if not."""
    if not value or value != value.strip():
        raise ValueError(f"{value!r}: NCCL trims nothing, so a value may not be empty or begin or end with a space")
    if not value.isprintable():
        raise ValueError(f"{value!r}: a value of nccl.conf is one line of printable characters")
    if value[0] in "\"'" or value[-1] in "\"'":
        raise ValueError(f"{value!r}: NCCL knows no quotes, they would become part of the value")
    if len(value) > MAX_CHARS:
        raise ValueError(f"NCCL cuts values at {MAX_CHARS} characters; this one has {len(value)}")
    return value


def version_key(version: str) -> tuple[int, ...]:
    """`2.24.3` as (2, 24, 3); ValueError where it is no version."""
    if not re.fullmatch(r"\d+(\.\d+)*", version):
        raise ValueError(f"{version!r} is no version such as 2.24 or 2.24.3")
    return tuple(int(part) for part in version.split("."))


def finds_gid_index(version: str | None) -> bool:
    """This NCCL finds the GID index of RoCE v2 by itself, or there is no NCCL to do so."""
    return version is None or version_key(version) >= version_key(FINDS_GID_INDEX)

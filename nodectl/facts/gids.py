"""The GID tables of RDMA ports: RoCE version, interface and IPv4 address of each entry."""

import re
from collections import Counter
from dataclasses import dataclass
from ipaddress import IPv6Address

from nodectl.common.natural import natural
from nodectl.facts.base import Fact, UnknownError, parsed_as
from nodectl.facts.ib_ports import COMMANDS, sysfs_devices
from nodectl.model.recording import Recording

_MAPPED = re.compile(r"(?:0000:){5}ffff:([0-9a-f]{4}):([0-9a-f]{4})")


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry of a port's GID table; `version` is v1 or v2 on RoCE, None on InfiniBand."""

    device: str
    port: int
    index: int
    gid: str
    version: str | None = None
    netdev: str | None = None
    ipv4: str | None = None


def _read(recording: Recording) -> tuple[Gid, ...]:
    try:
        devices = sysfs_devices(recording)
    except UnknownError:
        shown = parsed_as(recording, "show-gids").gids
        return tuple(Gid(g.device, g.port, g.index, g.gid, g.version, g.netdev, g.ipv4) for g in shown)
    return tuple(
        _gid(name, port, index, files)
        for name in sorted(devices, key=natural)
        for port, files in sorted(devices[name].ports.items())
        for index in _indexes(files)
    )


def _indexes(files: dict[str, str]) -> list[int]:
    return sorted(int(path[5:]) for path in files if path.startswith("gids/") and path[5:].isdigit())


def _gid(name: str, port: int, index: int, files: dict[str, str]) -> Gid:
    gid, netdev = files[f"gids/{index}"], files.get(f"gid_attrs/ndevs/{index}")
    kind = files.get(f"gid_attrs/types/{index}", "")
    version = None if files.get("link_layer") == "InfiniBand" else "v2" if kind == "RoCE v2" else "v1" if kind else None
    return Gid(name, port, index, gid, version, netdev, _ipv4(gid))


def _ipv4(gid: str) -> str | None:
    """The IPv4 address that a GID carries in its last four bytes; None where it carries none."""
    if "ffff" not in gid.lower():  # as before every such address: to read one is dear
        return None
    if (match := _MAPPED.fullmatch(gid)) is not None:  # as the kernel prints it
        high, low = int(match[1], 16), int(match[2], 16)
        return f"{high >> 8}.{high & 255}.{low >> 8}.{low & 255}"
    try:
        address = IPv6Address(gid).ipv4_mapped
    except ValueError:
        return None
    return None if address is None else str(address)


def _words(gids: tuple[Gid, ...]) -> str:
    versions = Counter(gid.version or "InfiniBand" for gid in gids)
    return ", ".join(f"{number} {version}" for version, number in sorted(versions.items())) or "none"


FACT = Fact("gids", COMMANDS, _read, _words, row=220)

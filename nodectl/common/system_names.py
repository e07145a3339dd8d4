"""Names as systems give them: types of file systems, prefixes of virtual interfaces, images of containers."""

from __future__ import annotations

import re

# of servers elsewhere: shared between hosts, and reached through a network port
NETWORK = frozenset(
    [
        *("9p", "beegfs", "ceph", "cifs", "fuse.juicefs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "weka"),
        "wekafs",
    ]
)
# of disks in the host itself
LOCAL = frozenset(["btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "xfs", "zfs"])


def is_network(kind: str, source: str) -> bool:
    """Return whether another host serves it: by its type, or as a FUSE mount names its server (`nas:/path`)."""
    host, colon, path = source.partition(":")
    return kind in NETWORK or bool(colon and host and path.startswith("/") and "/" not in host)


# prefixes of what containers, virtual machines and VPNs make: the same on every host, and leading to none of them
VIRTUAL = (
    *("br-", "cali", "cni", "docker", "flannel", "kube", "lxc", "lxdbr", "nodelocal", "podman", "tailscale"),
    *("tap", "tun", "veth", "virbr", "wg"),
)


_LONGEST_NAME = 255
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,}"
_IMAGE = re.compile(rf"((?:{_REGISTRY}/)?{_PART}(?:/{_PART})*)(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@{_DIGEST})?")


def is_image_name(text: str) -> bool:
    """Return whether it is `[REGISTRY[:PORT]/]NAME[:TAG][@DIGEST]`; the name itself in lower case."""
    match = _IMAGE.fullmatch(text)
    return match is not None and len(match[1]) <= _LONGEST_NAME

"""Types of file systems as the kernel names them in /proc/mounts."""

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

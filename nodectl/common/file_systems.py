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

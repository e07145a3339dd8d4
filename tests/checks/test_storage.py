"""Room, inodes and mounts."""

from nodectl.facts.processors import Memory
from nodectl.facts.storage import Disk, FileSystem, Mount, Mounts
from tests.checks.table import DENIED, UNREAD, Case


def shm(size: int | None, free: int | None = None) -> dict[str, object]:
    return {"memory": Memory(64_000, 64_000, 0, size, shm_free_mib=free)}


def disk(free: int, inodes: int | None = 3) -> dict[str, object]:
    return {"disk": Disk(50_000, free, "/root/.local/state/nodectl", 20_000, inodes, None)}


def mounts(**options: str) -> dict[str, Mounts]:
    rows = [Mount("/", "/dev/sda2", "ext4", tuple(options.get("root", "rw,noatime").split(",")))]
    rows += [Mount("/boot", "/dev/sda1", "ext4", ("ro",)), Mount("/snap/core", "/dev/loop1", "squashfs", ("ro",))]
    rows += [Mount("/data", "srv:/data", "nfs4", tuple(options["data"].split(",")))] if "data" in options else []
    rows += [Mount("/tmp", "tmpfs", "tmpfs", tuple(options["tmp"].split(",")))] if "tmp" in options else []
    return {"mounts": Mounts(tuple(rows))}


FOLDER = "/srv/state/nodectl"
STATE = {"disk": Disk(50_000, 9_000, FOLDER, 20_000)}
RO = Mount("/srv", "tmpfs", "tmpfs", ("ro",))
BELOW = Mount(f"{FOLDER}/checkpoints", "srv:/checkpoints", "nfs4", ("ro",))
DATA = {"mounts": ("/data",)}
SCRATCH = {"mounts": Mounts((Mount("/scratch", "/dev/nvme1n1", "xfs", ("ro",)),))}
LOG = FileSystem("/dev/md2", "/var/log", 20_000, 9_000, 99)
CASES = [
    Case("shared_memory", "ok", shm(1024)),
    Case("shared_memory", "warning", shm(64)),
    Case("shared_memory", "unknown", shm(None)),
    Case("shm_free", "ok", shm(64_000, 60_000)),
    Case("shm_free", "warning", shm(64_000, 100)),
    Case("shm_free", "nothing", shm(64, 1)),
    Case("disk", "ok", disk(9_000)),
    Case("disk", "warning", disk(20), subject="/"),
    Case("disk", "warning", {"disk": Disk(2_000_000, 80_000, "/s", 80_000, root_used_percent=96)}, subject="/"),
    Case("disk", "warning", {"disk": Disk(50_000, 9_000, "/s", 9_000, log=LOG)}, subject="/var/log"),
    Case("inodes", "ok", disk(9_000, None)),
    Case("inodes", "warning", disk(9_000, 97), subject="/"),
    Case("inodes", "warning", {"disk": Disk(50_000, 9_000, "/s", 9_000, 3, 3, 99)}, subject="/home"),
    Case("read_only", "ok", mounts(data="ro")),
    Case("read_only", "failed", mounts(root="ro,errors=remount-ro"), subject="/", action="reboot"),
    Case("read_only", "failed", mounts(data="ro"), variables=DATA, subject="/data", action="none"),
    Case("read_only", "failed", SCRATCH, variables={"mounts": ("/scratch",)}, subject="/scratch", action="drain"),
    Case("read_only", "ok", {**mounts(), **STATE}),
    Case("read_only", "failed", {"mounts": Mounts((*mounts()["mounts"].mounts, RO)), **STATE}, subject=FOLDER),
    Case("read_only", "failed", {"mounts": Mounts((*mounts()["mounts"].mounts, BELOW)), **STATE}, subject=BELOW.target),
    Case("noexec", "ok", mounts(tmp="rw,nosuid")),
    Case("noexec", "ok", mounts(data="rw,noexec")),
    Case("noexec", "warning", mounts(tmp="rw,noexec"), subject="/tmp"),
    Case("mount", "ok", mounts(data="rw"), variables=DATA),
    Case("mount", "failed", mounts(), variables=DATA, subject="/data", action="none"),
    Case("mount", "failed", {"mounts": UNREAD}, variables=DATA),
    Case("mount", "unknown", {"mounts": DENIED}, variables=DATA),
    Case("mount", "nothing", mounts()),
]

"""A control group (version 2) a host, so that a host can end a job with everything that it started."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nodectl.errors import LabError

_GONE_S, _RETRY_S = 5.0, 0.005
_CPU_V1 = Path("/sys/fs/cgroup/cpu")
_SLOW_US, _PERIOD_US = 20_000, 100_000
_MOVES = 20


def make_groups(lab_group: str, names: Sequence[str]) -> list[Path | None]:
    """Make the hosts' groups and return them; None for each where this machine has no writable cgroup2 mount."""
    root = cgroup2_root()
    if root is None:
        return [None] * len(names)
    groups: list[Path | None] = []
    try:
        for name in names:
            group = root / lab_group / name
            group.mkdir(parents=True, exist_ok=True)
            groups.append(group)
    except OSError:  # read-only, as in most containers
        return [None] * len(names)
    return groups


def remove_groups(lab_group: str) -> None:
    """Remove the lab's groups, deepest first; what still runs in them is killed."""
    if (_CPU_V1 / lab_group).is_dir():
        for group in (*(_CPU_V1 / lab_group).glob("*/"), _CPU_V1 / lab_group):
            _remove_v1(group)
    root = cgroup2_root()
    if root is None or not (root / lab_group).is_dir():
        return
    top = root / lab_group
    kill = top / "cgroup.kill"
    if kill.exists():
        kill.write_text("1")
    folders = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
    deadline = time.monotonic() + _GONE_S
    for folder in (*folders, top):
        while True:
            try:
                folder.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:  # the last process of it is still on its way out
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)


def cgroup2_root() -> Path | None:
    """Return where cgroup2 is mounted: /sys/fs/cgroup, or `unified` below it where version 1 is mounted beside it."""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[2] == "cgroup2" and fields[1].startswith("/sys/fs/cgroup"):
            return Path(fields[1])
    return None


def slow_down(lab_group: str, name: str, pid: int) -> None:
    """Give the host, whose PID 1 is `pid`, a fifth of one CPU; with version 1 of cgroups in a group made for it."""
    root = cgroup2_root()
    if root is not None and "cpu" in (root / "cgroup.controllers").read_text(encoding="utf-8").split():
        for above in (root, root / lab_group):
            (above / "cgroup.subtree_control").write_text("+cpu")
        (root / lab_group / name / "cpu.max").write_text(f"{_SLOW_US} {_PERIOD_US}")
        return
    if not (_CPU_V1 / "cgroup.procs").exists():
        raise LabError("this machine has no CPU controller that can be written", "mount cgroup2 at /sys/fs/cgroup")
    group = _CPU_V1 / lab_group / name
    group.mkdir(parents=True, exist_ok=True)
    (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(_SLOW_US))
    _move(group, Path(f"/proc/{pid}/ns/pid").stat().st_ino)


def cpu_group_of(pid: int) -> str:
    """Return the process's group in version 1's CPU hierarchy, below its root; empty if there is none."""
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, place = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return place.lstrip("/")
    return ""


def speed_up(lab_group: str, name: str, back: str) -> None:
    """Undo `slow_down`; `back` is the group of version 1 in which the host was."""
    root = cgroup2_root()
    limit = root / lab_group / name / "cpu.max" if root else None
    if limit and limit.exists():
        limit.write_text(f"max {_PERIOD_US}")
    _remove_v1(_CPU_V1 / lab_group / name, _CPU_V1 / back)


def _move(group: Path, namespace: int) -> None:
    """Put processes into the group until all of the PID namespace are in it: they go on starting others meanwhile."""
    for _ in range(_MOVES):
        inside = set((group / "cgroup.procs").read_text(encoding="utf-8").split())
        moved = False
        for entry in Path("/proc").glob("[1-9]*"):
            with suppress(OSError):  # it has ended
                if entry.name not in inside and (entry / "ns/pid").stat().st_ino == namespace:
                    (group / "cgroup.procs").write_text(entry.name)
                    moved = True
        if not moved:
            return


def _remove_v1(group: Path, back: Path = _CPU_V1) -> None:
    if not group.is_dir():
        return
    for _ in range(_MOVES):
        for pid in (group / "cgroup.procs").read_text(encoding="utf-8").split():
            with suppress(OSError):
                (back / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()
            return
        time.sleep(_RETRY_S)

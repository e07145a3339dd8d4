"""A control group (version 2) a host, so that a host can end a job with everything that it started."""

import time
from collections.abc import Sequence
from pathlib import Path

_GONE_S, _RETRY_S = 5.0, 0.005


def make_groups(lab_group: str, names: Sequence[str]) -> list[Path | None]:
    """The hosts' groups, made; None a host where this machine has no writable cgroup2 mount."""
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
    """Where cgroup2 is mounted: /sys/fs/cgroup, or `unified` below it where version 1 is mounted beside it."""
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[2] == "cgroup2" and fields[1].startswith("/sys/fs/cgroup"):
            return Path(fields[1])
    return None

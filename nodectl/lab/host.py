"""What happens inside a lab host between its birth and its sshd: it makes itself a machine of its own."""

import os
import resource
import signal
import socket
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nodectl.common.node_paths import LAB_SHARE
from nodectl.lab import syscalls as sys
from nodectl.lab.base import PATH, SSHD, write_file
from nodectl.lab.disk import mount_image
from nodectl.lab.dress import Outfit
from nodectl.lab.network import configure_interface
from nodectl.lab.shape import run_tc

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# other faces of the machine's kernel, beside /proc/sys
_PROC_READ_ONLY = ("acpi", "asound", "bus", "driver", "fs", "irq", "scsi")
_PROC_HIDDEN = ("kcore", "kmsg", "keys", "sysrq-trigger", "timer_list", "sched_debug", "latency_stats")
_DROPPED = (sys.CAP_SYS_MODULE, sys.CAP_SYS_RAWIO, sys.CAP_SYS_BOOT, sys.CAP_SYS_TIME, sys.CAP_SYSLOG, sys.CAP_MKNOD)
_UNSHARED = sys.CLONE_NEWNS | sys.CLONE_NEWUTS | sys.CLONE_NEWIPC | sys.CLONE_NEWNET
READY, GO = b"+", b"g"


@dataclass(frozen=True, slots=True)
class HostPlan:
    """All that a host needs to know of its lab; `layers` are (mount point, lower directories)."""

    name: str
    address: str
    neighbour: tuple[str, str] | None
    folder: Path
    layers: tuple[tuple[str, str], ...]
    files: Mapping[str, tuple[bytes, int]]
    share: Path
    cgroup: Path | None
    image: Path | None
    shaping: tuple[str, ...]
    outfit: Outfit | None = None


def become(plan: HostPlan, ready: int, go: int) -> NoReturn:
    """Turn this process, the first of its PID namespace, into `plan`'s sshd.

    Writes READY to `ready` when its namespaces stand, else what went wrong; then waits for GO on `go`, or ends with
    the launcher.
    """
    try:
        _let_go_of_the_operator(keep=(ready, go))
        _isolate(plan)
        _fill(plan)
        os.write(ready, READY)
        if os.read(go, 1) != GO:
            os._exit(0)
        configure_interface(plan.address, plan.neighbour)
        run_tc(plan.shaping)
        _give_up_powers()
        environment = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
        os.execve(SSHD, [SSHD, "-D", "-E", "/var/log/sshd.log"], environment)  # noqa: S606 - no shell is wanted
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        os.write(ready, f"{plan.name}: {error} ({where.name})\n".encode())
    finally:
        os._exit(1)


def _let_go_of_the_operator(keep: tuple[int, int]) -> None:
    """No terminal, pipe, signal setting or working folder of the caller stays."""
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    low, high = sorted(keep)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for first, last in ((3, low), (low + 1, high), (high + 1, min(limit, 65536))):
        os.closerange(first, last)
    for name in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)


def _isolate(plan: HostPlan) -> None:
    if plan.cgroup:
        plan.cgroup.joinpath("cgroup.procs").write_text("0")
    sys.unshare(_UNSHARED | (sys.CLONE_NEWCGROUP if plan.cgroup else 0))
    sys.mount("none", "/", None, sys.MS_REC | sys.MS_PRIVATE)
    socket.sethostname(plan.name)


def _fill(plan: HostPlan) -> None:
    root = str(plan.folder / "root")
    if plan.image:
        mount_image(plan.image, plan.folder / "disk")
    store = plan.folder / "disk"
    for number, (place, lower) in enumerate(plan.layers):
        upper, work = store / f"upper{number}", store / f"work{number}"
        upper.mkdir(exist_ok=True)
        work.mkdir(exist_ok=True)
        if number == 0:
            files = {**plan.files, **(plan.outfit.files() if plan.outfit else {})}
            for name, (content, mode) in files.items():
                write_file(upper / name, content, mode)
        options = f"lowerdir={lower},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        sys.mount("overlay", root + place.rstrip("/"), "overlay", 0, options)
    _mount_dev(root)
    _mount_proc_and_sys(root, own_cgroup=plan.cgroup is not None)
    for name, bits in (("run", "755"), ("tmp", "1777")):
        sys.mount("tmpfs", f"{root}/{name}", "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, f"mode={bits}")
    Path(root, "run/sshd").mkdir()
    Path(root, "run/lock").mkdir(mode=0o1777)
    sys.bind(str(plan.share), root + LAB_SHARE, read_only=True)
    for source, target in plan.outfit.mounts if plan.outfit else ():
        Path(root + target).mkdir(exist_ok=True)
        sys.mount(source, root + target, "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=755,size=1m")
    sys.pivot_root(root)


def _escaped(path: Path) -> str:
    """Return a path as overlayfs options want it."""
    return str(path).replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _mount_proc_and_sys(root: str, *, own_cgroup: bool) -> None:
    proc = f"{root}/proc"
    sys.mount("proc", proc, "proc", sys.MS_NOSUID | sys.MS_NODEV)
    # net belongs to the namespace, all else to the machine
    shared = [f"sys/{path.name}" for path in sorted(Path(proc, "sys").iterdir()) if path.name != "net"]
    for name in (*shared, *_PROC_READ_ONLY):
        if Path(proc, name).is_dir():
            sys.bind(f"{proc}/{name}", f"{proc}/{name}", read_only=True)
    for name in _PROC_HIDDEN:
        if Path(proc, name).exists():
            sys.bind(f"{root}/dev/null", f"{proc}/{name}", read_only=True)
    sys.mount("sysfs", f"{root}/sys", "sysfs", sys.MS_RDONLY | sys.MS_NOSUID | sys.MS_NODEV)
    if own_cgroup:
        sys.mount("none", f"{root}/sys/fs/cgroup", "cgroup2", sys.MS_NOSUID | sys.MS_NODEV)


def _mount_dev(root: str) -> None:
    dev = f"{root}/dev"
    sys.mount("tmpfs", dev, "tmpfs", sys.MS_NOSUID, "mode=755,size=1m")
    for name in ("net", "pts", "shm"):
        Path(dev, name).mkdir()
    for name in (*_DEVICES, "net/tun"):
        if Path("/dev", name).exists():
            os.mknod(f"{dev}/{name}", 0o20666, Path("/dev", name).stat().st_rdev)
            Path(dev, name).chmod(0o666)
    sys.mount("devpts", f"{dev}/pts", "devpts", sys.MS_NOSUID, "newinstance,ptmxmode=0666,mode=620,gid=5")
    sys.mount("tmpfs", f"{dev}/shm", "tmpfs", sys.MS_NOSUID | sys.MS_NODEV, "mode=1777")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd"}
    links |= {name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))}
    for name, target in links.items():
        Path(dev, name).symlink_to(target)


def _give_up_powers() -> None:
    for capability in _DROPPED:
        sys.drop_capability(capability)
    sys.forbid_kernel_log()

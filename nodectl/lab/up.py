"""Bringing a lab up: the order in which its parts are made, each one in the journal before it exists.

The last part is a host's own: between its birth and its sshd it makes itself a machine of its own.
"""

import json
import os
import resource
import shutil
import signal
import socket
import sys
import time
import traceback
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from nodectl.common.node_paths import LAB_SHARE, LAB_SHARED
from nodectl.common.paths import state_dir
from nodectl.errors import LabError, UsageError
from nodectl.lab import network, syscalls
from nodectl.lab.base import PATH, SSHD, build_base, share_folder, write_file
from nodectl.lab.cgroups import make_groups
from nodectl.lab.disk import default_disk_bytes, extra_mounts, loop_numbers, make_images, mount_image, store_needs_tmpfs
from nodectl.lab.down import down
from nodectl.lab.dress import Outfit, Wardrobe
from nodectl.lab.files import give_to_operator, new_key, write_files
from nodectl.lab.spec import MAX_WIRED_HOSTS, LabSpec
from nodectl.lab.state import HostRecord, LabFolder, LabState, LinkKind, Process, locked
from nodectl.lab.syscalls import CLONE_NEWPID, leaving, mount, unshare
from nodectl.lab.wiring import start_wire

_ANSWER_S, _RETRY_S, _SSH_PORT = 60.0, 0.02, 22
_SHARED = ("cpu", "memory", "clock", "kernel", "sys")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# other faces of the machine's kernel, beside /proc/sys
_PROC_READ_ONLY = ("acpi", "asound", "bus", "driver", "fs", "irq", "scsi")
_PROC_HIDDEN = ("kcore", "kmsg", "keys", "sysrq-trigger", "timer_list", "sched_debug", "latency_stats")
_DROPPED = (
    syscalls.CAP_SYS_MODULE,
    syscalls.CAP_SYS_RAWIO,
    syscalls.CAP_SYS_BOOT,
    syscalls.CAP_SYS_TIME,
    syscalls.CAP_SYSLOG,
    syscalls.CAP_MKNOD,
)
_UNSHARED = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWNET
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
    shared: Path
    cgroup: Path | None
    image: Path | None
    shaping: tuple[str, ...]
    outfit: Outfit | None = None


def up(folder: LabFolder, spec: LabSpec, wardrobe: Wardrobe | None = None) -> LabState:
    """Return the lab of that spec, dressed in `wardrobe`, made or found as it is; UsageError if another one is up."""
    if sys.platform != "linux":
        raise LabError("a lab needs Linux, whose namespaces its hosts are", "on a Linux machine, or in a virtual one")
    present = folder.read()
    if present and present.complete and any(host.up for host in present.hosts):
        return _as_found(folder, present, spec)
    if folder.path.exists():
        down(folder)
    if spec.disk_bytes is None:
        spec = replace(spec, disk_bytes=default_disk_bytes(state_dir(), spec.hosts))
    _require(spec)
    try:
        return _make(folder, spec, wardrobe)
    except OSError as error:
        down(folder)
        raise LabError(
            f"this machine does not allow a lab: {error}",
            "a container must be privileged, with /dev/net/tun for --delay",
        ) from error
    except BaseException:
        down(folder)
        raise


def _as_found(folder: LabFolder, present: LabState, spec: LabSpec) -> LabState:
    if not spec.fits(present.spec):
        raise UsageError(
            f"the lab '{folder.name}' is up with {present.spec.described()}, not {spec.described()}",
            "run `nodectl lab down` first, or give the other one a --name",
        )
    dead = [host.name for host in present.hosts if not host.up]
    if dead:
        raise LabError(f"hosts of the lab '{folder.name}' are dead: {', '.join(dead)}", "run `nodectl lab down` first")
    return present


def _make(folder: LabFolder, spec: LabSpec, wardrobe: Wardrobe | None) -> LabState:
    folder.path.mkdir(mode=0o755, parents=True)
    with ExitStack() as claim:
        claim.enter_context(locked(network.ADDRESSES_LOCK))
        subnet = network.free_subnet()
        addresses = {name: network.host_address(subnet, index) for index, name in enumerate(spec.names())}
        hosts = tuple(HostRecord(name, address, network.mac_of(address)) for name, address in addresses.items())
        loops = tuple(loop_numbers()) if spec.disk_bytes else ()
        state = folder.write(LabState(spec, subnet, "veth", hosts, former_loops=loops))
        network.make_switch(folder)
        state = folder.write(replace(state, link=_choose_link(folder, spec)))
        if state.link != "wire":
            network.join_machine(folder, subnet)
            claim.close()  # the machine's route shows from here on that the subnet is taken; a wire's when it runs
        host_keys = {host.name: new_key() for host in hosts}
        private, public = new_key()
        write_file(folder.client_key, private, 0o600)
        folder.client_key.with_suffix(".pub").write_text(f"{public} nodectl-lab\n", encoding="utf-8")
        build_base(folder, state.hosts, f"{public} nodectl-lab\n")
        plans = _plans(folder, state, host_keys, wardrobe)
        state = _start(folder, state, plans)
    public_keys = {name: public for name, (_, public) in host_keys.items()}
    write_files(folder, state, public_keys, wardrobe.profiles if wardrobe else {})
    give_to_operator(folder)
    _wait_for_answers(state)
    return folder.write(replace(state, complete=True))


def _choose_link(folder: LabFolder, spec: LabSpec) -> LinkKind:
    if not spec.impaired:
        return "veth"
    if network.kernel_has_netem(folder.switch):
        return "netem"
    if spec.hosts > MAX_WIRED_HOSTS:
        raise LabError(
            f"this kernel has no netem, and the link in user space serves {MAX_WIRED_HOSTS} hosts, not {spec.hosts}",
            "modprobe sch_netem, or leave out --delay and --loss",
        )
    return "wire"


def _plans(
    folder: LabFolder, state: LabState, keys: Mapping[str, tuple[bytes, str]], wardrobe: Wardrobe | None
) -> list[HostPlan]:
    folder.store.mkdir(mode=0o700)
    folder.shared.mkdir(mode=0o700)
    if not state.spec.disk_bytes and store_needs_tmpfs(folder.store):
        mount("nodectl-lab", str(folder.store), "tmpfs", 0, "mode=700")
    layers = (("/", f"{folder.base}:/"), *((place, place) for place in extra_mounts()))
    names = [host.name for host in state.hosts]
    for name in names:
        for part in ("disk", "root"):
            (folder.store / name / part).mkdir(parents=True)
    images = make_images(folder.store, names, state.spec.disk_bytes) if state.spec.disk_bytes else [None] * len(names)
    groups = make_groups(folder.cgroup, names)
    operator = network.operator_address(state.subnet)
    return [
        HostPlan(
            name=host.name,
            address=host.address,
            neighbour=None if state.link == "wire" else (operator, network.mac_of(operator)),
            folder=folder.store / host.name,
            layers=layers,
            files=_own_files(folder, host, keys[host.name], state.spec.recorded),
            share=share_folder(),
            shared=folder.shared,
            cgroup=group,
            image=image,
            shaping=() if state.link == "wire" else network.host_shaping(state.spec),
            outfit=wardrobe.outfits[host.name] if wardrobe else None,
        )
        for host, image, group in zip(state.hosts, images, groups, strict=True)
    ]


def _own_files(
    folder: LabFolder, host: HostRecord, key: tuple[bytes, str], recorded: str
) -> dict[str, tuple[bytes, int]]:
    mark: dict[str, object] = {"lab": folder.name, "host": host.name, "shared": _SHARED}
    if recorded:
        mark["recorded"] = recorded
    machine_id = uuid.uuid5(uuid.NAMESPACE_OID, f"{folder.path}/{host.name}").hex
    return {
        "etc/hostname": (f"{host.name}\n".encode(), 0o644),
        "etc/machine-id": (f"{machine_id}\n".encode(), 0o444),
        "etc/nodectl-lab": (f"{json.dumps(mark)}\n".encode(), 0o644),
        "etc/ssh/ssh_host_ed25519_key": (key[0], 0o600),
        "etc/ssh/ssh_host_ed25519_key.pub": (f"{key[1]} root@{host.name}\n".encode(), 0o644),
    }


def _start(folder: LabFolder, state: LabState, plans: Sequence[HostPlan]) -> LabState:
    """Fork the hosts, join them to the network, let them go; every process is in the journal before it may go on."""
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    try:
        pids = [_fork_host(plan, ready_write, go_read) for plan in plans]
        os.close(ready_write)
        hosts = tuple(replace(host, process=Process.of(pid)) for host, pid in zip(state.hosts, pids, strict=True))
        state = folder.write(replace(state, hosts=hosts))
        seen = b""
        while len(seen) < len(plans) * len(READY):
            chunk = os.read(ready_read, 65536)
            seen += chunk
            if not chunk or seen.strip(READY):
                reason = seen.strip(READY).decode(errors="replace").strip() or "it died"
                raise LabError(f"a host did not start: {reason}")
        if state.link == "wire":
            state = start_wire(folder, state)
        else:
            network.plug_in(folder, state)
        os.write(go_write, GO * len(plans))
        # it ends when the last host has become its sshd
        if complaint := b"".join(iter(lambda: os.read(ready_read, 65536), b"")):
            raise LabError(f"a host did not start: {complaint.decode(errors='replace').strip()}")
        return state
    finally:
        for descriptor in (ready_read, go_read, go_write):
            os.close(descriptor)


def _fork_host(plan: HostPlan, ready: int, go: int) -> int:
    with leaving(CLONE_NEWPID):
        unshare(CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            become(plan, ready, go)
        return pid


def _wait_for_answers(state: LabState) -> None:
    silent, deadline = [host.address for host in state.hosts], time.monotonic() + _ANSWER_S
    while silent and time.monotonic() < deadline:
        silent = [address for address in silent if not _greets(address)]
        time.sleep(_RETRY_S)
    if silent:
        raise LabError(
            f"{len(silent)} of {len(state.hosts)} hosts did not answer on port 22: {', '.join(silent[:5])}",
            "a firewall of this machine may block 10.0.0.0/8 on interfaces named nl-*",
        )


def _greets(address: str) -> bool:
    with suppress(OSError), socket.create_connection((address, _SSH_PORT), 1.0) as connection:
        return connection.recv(64).startswith(b"SSH-")
    return False


# program → package of Debian
_PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "tc": "iproute2",
    "mkfs.ext4": "e2fsprogs",
}


def _require(spec: LabSpec) -> None:
    wanted = ["sshd", "ssh", "ip"]
    wanted += ["tc"] if spec.rate_bits or spec.impaired else []
    wanted += ["mkfs.ext4"] if spec.disk_bytes else []
    missing = [name for name in wanted if not (Path(SSHD).exists() if name == "sshd" else shutil.which(name))]
    if missing:
        packages = " ".join(sorted({_PACKAGES[name] for name in missing}))
        raise LabError(f"this machine has no {', '.join(missing)}", f"install Debian's {packages}, or what has it here")
    if "overlay" not in Path("/proc/filesystems").read_text(encoding="utf-8"):
        raise LabError("this kernel has no overlay file system", "modprobe overlay")


def become(plan: HostPlan, ready: int, go: int) -> NoReturn:
    """Turn this process, the first of its PID namespace, into `plan`'s sshd; tell `ready`, and wait for GO on `go`."""
    try:
        _let_go_of_the_operator(keep=(ready, go))
        if plan.cgroup:
            plan.cgroup.joinpath("cgroup.procs").write_text("0")
        syscalls.unshare(_UNSHARED | (syscalls.CLONE_NEWCGROUP if plan.cgroup else 0))
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        socket.sethostname(plan.name)
        _fill(plan)
        os.write(ready, READY)
        if os.read(go, 1) != GO:
            os._exit(0)
        network.configure_interface(plan.address, plan.neighbour)
        network.run_tc(plan.shaping)
        for capability in _DROPPED:
            syscalls.drop_capability(capability)
        syscalls.forbid_kernel_log()
        environment = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
        os.execve(SSHD, [SSHD, "-D", "-E", "/var/log/sshd.log"], environment)  # noqa: S606 - no shell is wanted
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        os.write(ready, f"{plan.name}: {error} ({where.name})\n".encode())
    finally:
        os._exit(1)


def _let_go_of_the_operator(keep: tuple[int, int]) -> None:
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
        syscalls.mount("overlay", root + place.rstrip("/"), "overlay", 0, options)
    _mount_dev(root)
    _mount_proc_and_sys(root, own_cgroup=plan.cgroup is not None)
    for name, bits in (("run", "755"), ("tmp", "1777")):
        syscalls.mount("tmpfs", f"{root}/{name}", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, f"mode={bits}")
    Path(root, "run/sshd").mkdir()
    Path(root, "run/lock").mkdir(mode=0o1777)
    syscalls.bind(str(plan.share), root + LAB_SHARE, read_only=True)
    syscalls.bind(str(plan.shared), root + LAB_SHARED)
    for source, target in plan.outfit.mounts if plan.outfit else ():
        Path(root + target).mkdir(exist_ok=True)
        syscalls.mount(source, root + target, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755,size=1m")
    syscalls.pivot_root(root)


def _escaped(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _mount_proc_and_sys(root: str, *, own_cgroup: bool) -> None:
    proc = f"{root}/proc"
    syscalls.mount("proc", proc, "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV)
    # net belongs to the namespace, all else to the machine
    shared = [f"sys/{path.name}" for path in sorted(Path(proc, "sys").iterdir()) if path.name != "net"]
    for name in (*shared, *_PROC_READ_ONLY):
        if Path(proc, name).is_dir():
            syscalls.bind(f"{proc}/{name}", f"{proc}/{name}", read_only=True)
    for name in _PROC_HIDDEN:
        if Path(proc, name).exists():
            syscalls.bind(f"{root}/dev/null", f"{proc}/{name}", read_only=True)
    syscalls.mount("sysfs", f"{root}/sys", "sysfs", syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV)
    if own_cgroup:
        syscalls.mount("none", f"{root}/sys/fs/cgroup", "cgroup2", syscalls.MS_NOSUID | syscalls.MS_NODEV)


def _mount_dev(root: str) -> None:
    dev = f"{root}/dev"
    syscalls.mount("tmpfs", dev, "tmpfs", syscalls.MS_NOSUID, "mode=755,size=1m")
    for name in ("net", "pts", "shm"):
        Path(dev, name).mkdir()
    for name in (*_DEVICES, "net/tun"):
        if Path("/dev", name).exists():
            os.mknod(f"{dev}/{name}", 0o20666, Path("/dev", name).stat().st_rdev)
            Path(dev, name).chmod(0o666)
    syscalls.mount("devpts", f"{dev}/pts", "devpts", syscalls.MS_NOSUID, "newinstance,ptmxmode=0666,mode=620,gid=5")
    syscalls.mount("tmpfs", f"{dev}/shm", "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=1777")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd"}
    links |= {name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))}
    for name, target in links.items():
        Path(dev, name).symlink_to(target)

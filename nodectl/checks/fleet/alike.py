"""The fields in which hosts of one hardware profile, and their like parts, should agree; only `compare` reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_interface
from operator import attrgetter
from pathlib import PurePosixPath
from typing import Any

from nodectl.checks.check import FIXED, Check, Field, Subject, Values
from nodectl.checks.gpu.count import GPUS
from nodectl.checks.kernel.settings import parse_nccl
from nodectl.checks.network.infiniband import is_active, rdma_of_profile
from nodectl.checks.network.nics import is_device, is_own, training_names
from nodectl.common import system_names
from nodectl.common.counting import counted
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.host_files import HostFiles
from nodectl.facts.kernel import KernelKnobs
from nodectl.facts.network import Nic
from nodectl.facts.processors import Cpu, Numa
from nodectl.facts.services import Units
from nodectl.facts.settings import SessionLimits, Sysctl
from nodectl.facts.storage import Mount, Mounts
from nodectl.facts.versions import Libraries, Versions
from nodectl.model.status import Status

# settings that the kernel derives from the machine's memory
_BY_SIZE = {
    *("net.ipv4.tcp_mem", "vm.min_free_kbytes", "kernel.threads-max", "fs.inotify.max_user_watches", "fs.file-max"),
    *("kernel.pid_max", "net.ipv4.udp_mem"),
}
_MODULES = (
    *("nvidia_peermem", "nv_peer_mem", "nvidia_uvm", "nvidia_fs", "gdrdrv", "ib_uverbs", "rdma_cm", "ib_ipoib"),
    *("ib_umad", "rdma_ucm", "mlx5_ib"),
)
_OPTIONS = ("ro", "rw", "hard", "soft", "vers", "rsize", "wsize", "nconnect", "noatime", "proto", "flock", "localflock")
# words of the kernel's command line that name the host's own disks and boot
_OF_ONE_HOST = (
    *("BOOT_IMAGE=", "root=", "resume=", "initrd=", "ip=", "BOOTIF=", "hostname=", "systemd.hostname=", "ostree="),
    *("ds=", "rd.luks", "rd.lvm", "rd.md", "rd.iscsi", "netroot=", "nfsroot=", "crashkernel="),
)
# file systems of disks that a site mounts, not those of container engines and the boot loader
_DISKS = system_names.LOCAL - {"overlay"}
_NOT_OF_THE_SITE = ("/boot", "/dev", "/proc", "/run", "/snap", "/sys", "/var/lib")


def alike(name: str, what: str, remedy: str, reads: str, values: Callable[[Subject, Any], Values], **how: Any) -> Field:
    """Return the field `fleet_NAME` of the fact that `reads` names first."""
    status = how.pop("status", Status.WARNING)
    without = "nothing" if how.get("majority") else "a warning"
    fires = f"{status}: {what} not as most have it; {without} without a majority"
    check = Check(f"fleet_{name}", fires, remedy=remedy, follows=how.pop("follows", ()))
    return Field(check, tuple(reads.split()), values, status, **how)


def gpu_alike(name: str, what: str, remedy: str, value: str | Callable[[Gpu], object], **how: Any) -> Field:
    """Return a field of each GPU: an attribute, or a value computed from several.

    GPUs of one model are compared, within a host and over all hosts.
    """
    read = attrgetter(value) if isinstance(value, str) else value

    def values(_: Subject, gpus: Gpus) -> Values:
        readings = {("", gpu.name or "", gpu.label): read(gpu) for gpu in gpus.devices}
        return {key: _text(reading) for key, reading in readings.items() if reading is not None}

    return alike(name, what, remedy, "gpus", values, parts="GPU", **how)


def _models(host: Subject, gpus: Gpus) -> Values:
    """Return each GPU's name; if the profile names no count or several kinds, those of the host as one value."""
    names = {gpu.label: gpu.name for gpu in gpus.devices if gpu.name}
    groups = host.wanted.hardware.groups if host.wanted else ()
    if names and (host.gpus is None or len(groups) > 1):
        return " + ".join(sorted(set(names.values())))
    return {("", "", label): name for label, name in names.items()}


def _text(value: object) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _of_stack(name: str) -> Callable[[Subject, Versions], Values]:

    def values(host: Subject, versions: Versions) -> Values:
        stack = host.wanted.stack if host.wanted else None
        actual: str | None = getattr(versions, name)
        return actual if stack is None or getattr(stack, name) is None else FIXED

    return values


def _settings(host: Subject, gpus: Gpus) -> Values:
    tuning = host.wanted.tuning.gpu if host.wanted else None
    attributes = {
        "ecc": "ecc_mode_current",
        "mig": "mig_mode",
        "persistence": "persistence_mode",
        "compute_mode": "compute_mode",
        "power_limit_w": "power_limit_w",
    }
    values: dict[tuple[str, str, str], str | None] = {}
    for gpu in gpus.devices:
        for name, attribute in attributes.items():
            value = getattr(gpu, attribute)
            if tuning and getattr(tuning, name) is not None:
                values[name, gpu.name or "", gpu.label] = FIXED
            elif value is not None:  # the value's own check reports None
                values[name, gpu.name or "", gpu.label] = _text(value)
    return values


def _order(_: Subject, gpus: Gpus) -> Values:
    # a missing GPU has a finding of its own
    return {counted(len(gpus.devices), "GPU"): " ".join(gpu.bus_id or "?" for gpu in gpus.devices)}


def _sysctls(host: Subject, live: Mapping[str, Sysctl]) -> Values:
    fixed = host.wanted.tuning.sysctl if host.wanted else {}
    return {
        key: FIXED if key in fixed else setting.value
        for key, setting in live.items()
        if key not in _BY_SIZE and setting.value
    }


def _knobs(_: Subject, knobs: KernelKnobs) -> Values:
    values = {
        "governor": " ".join(sorted(knobs.governors)),
        "huge pages": knobs.transparent_hugepage,
        "SMT": knobs.smt,
        "frequency driver": knobs.frequency_driver,
        "idle driver": knobs.idle_driver,
        "clock": knobs.clocksource,
        "tuned's profile": knobs.tuned_profile,
        "IOMMU": None if knobs.iommu_groups is None else counted(knobs.iommu_groups, "group"),
        "kernel's command line": " ".join(
            word for word in (knobs.cmdline or "").split() if not word.startswith(_OF_ONE_HOST)
        ),
    }
    return {name: value for name, value in values.items() if value}


def _mtus(host: Subject, nics: Mapping[str, Nic]) -> Values:
    fixed = training_names(host) if host.wanted and host.wanted.tuning.nic.mtu else []
    everywhere = bool(host.wanted and host.wanted.tuning.nic.mtu) and not fixed
    return {
        name: FIXED if name in fixed or (everywhere and is_device(nic)) else str(nic.mtu)
        for name, nic in nics.items()
        if is_own(nic) or (is_device(nic) and nic.state == "up")
    }


def _rates(_: Subject, nics: Mapping[str, Nic]) -> Values:
    return _counted(
        f"{nic.driver or nic.kind} {nic.speed_mbit or '?'} Mbit/s"
        for nic in nics.values()
        if (is_device(nic) or is_own(nic)) and nic.state == "up"
    )


def _firmware_of_nics(_: Subject, nics: Mapping[str, Nic]) -> Values:
    # the text ends with the board's name, which may differ
    return {
        ("", nic.driver or "", nic.name): nic.firmware.split()[0]
        for nic in nics.values()
        if is_device(nic) and nic.firmware
    }


def _networks(_: Subject, nics: Mapping[str, Nic]) -> Values:
    networks: dict[str, str | None] = {}
    for nic in filter(is_own, nics.values()):
        addresses = [text for text in nic.addresses if "." in text and not text.startswith("169.254.")]
        if addresses:
            networks[nic.name] = ", ".join(sorted({str(ip_interface(text).network) for text in addresses}))
    return networks


def _processors(host: Subject, cpu: Cpu) -> Values:
    numa = host.fact("numa", Numa)
    nodes = len(numa.nodes) if numa else cpu.numa_nodes
    return f"{cpu.sockets} x {cpu.model}, {counted(cpu.threads, 'thread')}, {counted(nodes, 'NUMA node')}"


def _mounted(_: Subject, mounts: Mounts) -> Values:
    live = {mount.target: mount for mount in mounts.mounts if mount.kind != "autofs"}
    automatic = {mount.target for mount in mounts.mounts if mount.kind == "autofs" and not _is_systems(mount.target)}
    values: dict[str, str | None] = dict.fromkeys(automatic, "mounted when it is needed")
    for target, mount in live.items():
        above = {target, *map(str, PurePosixPath(target).parents)}
        if not above & automatic and (text := _shown(mount)):
            values[target] = text
    return values


def _is_systems(target: str) -> bool:
    return any(target == folder or target.startswith(f"{folder}/") for folder in _NOT_OF_THE_SITE)


def _shown(mount: Mount) -> str:
    if _is_systems(mount.target):
        return ""  # container mounts come and go
    if system_names.is_network(mount.kind, mount.source):
        kept = sorted(option for option in mount.options if option.partition("=")[0] in _OPTIONS)
        return f"{mount.source} ({mount.kind}: {','.join(kept)})"
    is_sites = mount.kind in _DISKS and mount.source.startswith("/dev/")
    return f"a disk ({mount.kind})" if is_sites and mount.target != "/" else ""


def _variables(_: Subject, files: HostFiles) -> Values:
    # all in one value: a variable of one host only is a difference, too
    return ", ".join(f"{variable.name}={variable.value} ({variable.file})" for variable in files.variables) or "none"


def _libraries(_: Subject, libraries: Libraries) -> Values:
    versions: dict[str, set[str]] = {}
    for library in libraries.libraries:
        versions.setdefault(library.name.partition(".so")[0], set()).add(library.version or "some version")
    return {name: ", ".join(sorted(given)) for name, given in versions.items()}


def _limits(host: Subject, limits: SessionLimits) -> Values:
    wanted = host.wanted.tuning.limits if host.wanted else {}
    given = {"memlock": limits.memlock, "nofile": limits.nofile, "stack": limits.stack}
    return {name: FIXED if name in wanted else value for name, value in given.items()}


def _running(_: Subject, units: Units) -> Values:
    return {
        name: "running"
        for name, unit in units.units.items()
        # what is not wanted anywhere has a check of its own
        if (unit.active, unit.sub) == ("active", "running") and name != "unattended-upgrades"
    }


def _counted(values: Iterable[str]) -> str | None:
    return ", ".join(f"{number} x {value}" for value, number in sorted(Counter(values).items())) or None


def _joined(values: Iterable[str]) -> str | None:
    return ", ".join(values) or None


_SAME_STACK = "give the hosts one stack: set nodectl_stack, then `nodectl provision`"
_SAME_GPUS = "ranks on unlike GPUs wait for the slowest: look for an exchanged card"
_GPU_FIRMWARE = "have the vendor's firmware package installed there, then reboot"
_SET_THERE = "set it there as on the others"
_REBOOT = "bring it to the others' version (the vendor's update, or the package of microcode), then reboot"
_LOST_PART = "look for what is missing: a module, a processor or a setting of the firmware (`ipmitool sel list`)"
_MISSING_GPU = "run `nvidia-smi -L` there; `dmesg` there says why one is gone"
_SLOT = "reseat the card, look at its riser and the slot's setting in the firmware (`lspci -vv`, LnkSta)"
_ORDER = "a rank's GPU is another one there: compare the slots, the firmware's settings and CUDA_DEVICE_ORDER"
_NETWORK = "correct the address there (netplan, NetworkManager, the DHCP server's entry)"
_FABRIC = "look which switch the port is on (`iblinkinfo`), and which subnet manager answers (`sminfo`)"
# checks of causes for such differences, whose remedies come first
_GPU_CAUSES = ("gpu_lost", GPUS.id, "driver_loaded", "driver_library")

# fmt: off
FIELDS: tuple[Field, ...] = (
    alike("driver", "the loaded driver", "install the others' driver, then reboot", "versions", lambda _, it: it.driver,
          status=Status.FAILED, unread=True, follows=("driver_loaded",)),
    alike("nccl", "NCCL of the launcher's environment", _SAME_STACK, "versions", _of_stack("nccl"),
          status=Status.FAILED, unread=True),
    alike("torch", "torch", _SAME_STACK, "versions", _of_stack("torch"), status=Status.FAILED),
    alike("cuda", "the CUDA that torch brings", _SAME_STACK, "versions", _of_stack("cuda"), status=Status.FAILED),
    alike("cudnn", "the cuDNN that torch brings", _SAME_STACK, "versions", _of_stack("cudnn")),
    alike("python", "Python of the launcher's environment", _SAME_STACK, "versions", lambda _, it: it.venv_python),
    alike("gpus", "how many GPUs, where no profile says it", _MISSING_GPU, "gpus",
          lambda host, it: counted(it.count, "GPU") if host.gpus is None and not it.disputed else FIXED,
          status=Status.FAILED, follows=_GPU_CAUSES),
    alike("gpu_model", "each GPU's name; a host's where its kinds are not named", _SAME_GPUS, "gpus", _models,
          parts="GPU", status=Status.FAILED),
    gpu_alike("gpu_pcie_gen", "each GPU's PCIe generation at P0, when nothing saves power", _SLOT,
              lambda gpu: gpu.pcie_gen_current if gpu.performance_state == "P0" else None,
              follows=("gpu_pcie_gen",)),
    gpu_alike("vbios", "each GPU's VBIOS", _GPU_FIRMWARE, "vbios_version"),
    alike("gpu_settings", "ECC, MIG, persistence, compute mode, power limit of each GPU", _SET_THERE, "gpus",
          _settings, parts="GPU"),
    alike("gpu_order", "the GPUs' bus addresses, in the order of their numbers", _ORDER, "gpus", _order, absence=False),
    alike("kernel", "the running kernel", "install the others' kernel there and boot it", "kernel",
          lambda _, it: it.release, unread=True),
    alike("os", "the distribution", "bring the hosts to one release", "kernel", lambda _, it: it.os_name or it.os_id),
    alike("glibc", "the C library", "bring the hosts to one release: what one compiles does not start on the other",
          "userland", lambda _, it: it.glibc, unread=True),
    alike("sysctl", "kernel settings that no tuning sets", "set it in the tuning, then `nodectl provision`", "sysctl",
          _sysctls, unread=True),
    alike("kernel_knobs", "governor, CPU drivers, huge pages, SMT, IOMMU, clock, the kernel's command line",
          f"{_SET_THERE} (tuned, the firmware; the command line: GRUB_CMDLINE_LINUX, then reboot)", "kernel_knobs",
          _knobs),
    alike("nic_firmware", "firmware of each interface, by driver", "update it there, then reboot", "nics",
          _firmware_of_nics, parts="interface"),
    alike("nics", "interfaces that are up, and their rates", "look at `ip link` and `ethtool` there", "nics", _rates),
    alike("mtu", "MTU, by interface", "set one MTU on all hosts, and on every switch between", "nics", _mtus,
          status=Status.FAILED, absence=False),
    alike("subnet", "IPv4 networks, by interface", _NETWORK, "nics", _networks, absence=False, majority=True),
    alike("ib_firmware", "firmware of each RDMA device, by board", "update it (`mlxfwmanager`), then reset them",
          "ib_ports",  # ibstat has no board, and the device's type
          lambda _, it: {("", port.board_id or port.type or "", port.device): port.firmware
                         for port in it if port.firmware},
          parts="device"),
    alike("ib_ports", "active RDMA ports and their rates", "look at `ibstat` there", "ib_ports",
          lambda host, it: FIXED if rdma_of_profile(host) else _counted(
              f"{port.link_layer} {port.rate_gbit_s:g} Gbit/s" for port in it if is_active(port) and port.rate_gbit_s),
          status=Status.FAILED),
    alike("ib_prefix", "the subnet's prefix, by InfiniBand device", _FABRIC, "gids",
          # the first 64 bits of an InfiniBand port's first GID are its subnet's
          lambda _, it: {gid.device: ":".join(gid.gid.split(":")[:4])
                         for gid in it if gid.index == 0 and gid.version is None},
          absence=False,
          unread=True, majority=True),
    alike("pkeys", "the partitions of InfiniBand ports", "correct the manager's partitions", "pkeys",
          # the set of keys, whichever port has them: a storage port may have another key on every host
          lambda _, it: "; ".join(sorted({", ".join(keys) for keys in it.ports.values()})) or None,
          status=Status.FAILED),
    alike("flow_control", "PFC and ECN of RoCE interfaces", f"{_SET_THERE}, and on the switch's port", "flow_control",
          lambda _, it: {name: str(each) for name, each in it.interfaces.items()}, absence=False, unread=True),
    alike("acs", "PCIe access control", "switch it on all bare-metal hosts alike: off for peer traffic", "pcie",
          lambda host, it: FIXED if host.wanted and host.wanted.tuning.gpu.acs else
          "redirecting" if any(bridge.redirects for bridge in it.bridges) else "off",
          unread=True),
    alike("cpu", "processors and NUMA nodes", _LOST_PART, "cpu numa", _processors, unread=True,
          follows=("cpu_offline", "cpu_sockets", "cpu_cores", "cpu_threads")),
    alike("memory", "installed memory", _LOST_PART, "memory", lambda _, it: f"{it.installed_gib} GiB", unread=True),
    alike("board_firmware", "the board's firmware, by product", _REBOOT, "firmware",
          lambda _, it: {it.board.get("product_name", ""): it.board.get("bios_version") or "not told"}, absence=False),
    alike("microcode", "the processors' microcode", _REBOOT, "firmware", lambda _, it: _joined(it.microcode),
          unread=True),
    alike("nvme_disks", "NVMe disks, by model", "look for a disk that is gone (`nvme list`, `dmesg`) or was exchanged",
          "firmware", lambda _, it: _counted(it.drives), unread=True),
    alike("mounts", "mounted network file systems with their options, and disks",
          "mount what the others have, as they have it (`findmnt`, /etc/fstab)", "mounts", _mounted),
    alike("services", "services that run, of those that training depends on",
          "`systemctl status` and `journalctl -u` there say why; `systemctl enable --now` starts it", "units", _running,
          follows=("unit_stopped",)),
    alike("modules", "modules of GPUs and RDMA", "load the same modules (/etc/modules-load.d)", "modules",
          lambda _, it: " ".join(name for name in _MODULES if name in it.loaded) or "none of them", unread=True),
    alike("libraries", "NVIDIA's libraries of the system", "install the others' packages there, or take away its own",
          "libraries", _libraries, unread=True),
    alike("limits", "the limits of a session", "set them in the tuning, then `nodectl provision`", "limits", _limits),
    alike("nccl_user", "variables of `~/.nccl.conf`, or of NCCL_CONF_FILE",
          "keep one such file on all hosts, or none", "nccl_files",
          lambda _, it: _joined(sorted("=".join(each) for each in parse_nccl(it.user or "").items())) or "none"),
    alike("login_variables",
          "`NCCL_*`, `CUDA_*`, `LD_LIBRARY_PATH`, `LD_PRELOAD` in /etc/environment, profile.d and rc files",
          "keep one setting on all hosts, in the job's environment or the tuning; take the line out of that file",
          "host_files", _variables, unread=True),
)
# fmt: on

"""What one host brings to the comparison of a fleet: a text for each field that no profile of its own fixes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from nodectl.checks.check import Check, Field, Key, Subject, compares
from nodectl.checks.kernel.settings import parse_nccl
from nodectl.checks.network.infiniband import has_spare_ports, is_active, rdma_of_profile
from nodectl.common import file_systems
from nodectl.common.counting import counted
from nodectl.common.interfaces import VIRTUAL
from nodectl.facts.cpu import Cpu
from nodectl.facts.gpus import Gpus
from nodectl.facts.host_files import HostFiles
from nodectl.facts.ib_ports import IbPort
from nodectl.facts.kernel import Kernel
from nodectl.facts.kernel_knobs import KernelKnobs
from nodectl.facts.libraries import Libraries
from nodectl.facts.limits import SessionLimits
from nodectl.facts.memory import Memory
from nodectl.facts.modules import Modules
from nodectl.facts.mounts import Mounts
from nodectl.facts.nccl_files import NcclFiles
from nodectl.facts.nics import Nic
from nodectl.facts.numa import Numa
from nodectl.facts.pcie import Pcie
from nodectl.facts.sysctl import Sysctl
from nodectl.facts.versions import Versions
from nodectl.model.status import Status

Values = Iterator[tuple[Key, str | None]]
# the kernel works these out from the memory of the machine
_BY_SIZE = {
    *("net.ipv4.tcp_mem", "vm.min_free_kbytes", "kernel.threads-max", "fs.inotify.max_user_watches", "fs.file-max"),
    *("kernel.pid_max", "net.ipv4.udp_mem"),
}
_MODULES = ("nvidia_peermem", "nv_peer_mem", "nvidia_uvm", "nvidia_fs", "gdrdrv", "ib_uverbs", "rdma_cm", "ib_ipoib")
_OPTIONS = ("ro", "rw", "hard", "soft", "vers", "rsize", "wsize", "nconnect", "noatime", "proto", "flock", "localflock")


def field_of(name: str, looks_at: str, remedy: str, status: Status = Status.WARNING) -> Field:
    fires = f"{status}: not as most hosts have it; a warning without a majority"
    return Field(Check(f"fleet_{name}", looks_at, fires, remedy=remedy), status)


_SAME_STACK = "give the hosts one stack: set nodectl_stack, then `nodectl provision`"
DRIVER = field_of("driver", "the loaded driver", "install the others' driver, then reboot", Status.FAILED)
NCCL = field_of("nccl", "NCCL of the launcher's environment", _SAME_STACK, Status.FAILED)
TORCH = field_of("torch", "torch", _SAME_STACK, Status.FAILED)
CUDA = field_of("cuda", "the CUDA that torch brings", _SAME_STACK, Status.FAILED)
CUDNN = field_of("cudnn", "the cuDNN that torch brings", _SAME_STACK)
PYTHON = field_of("python", "Python of the launcher's environment", _SAME_STACK)


@compares(DRIVER, NCCL, TORCH, CUDA, CUDNN, PYTHON, reads=("versions",), unread=(DRIVER, NCCL))
def versions(host: Subject, versions: Versions) -> Values:
    stack = host.wanted.stack if host.wanted else None
    yield DRIVER.of(versions.driver)
    fixed_by_stack = (
        (TORCH, "torch", versions.torch),
        (CUDA, "cuda", versions.cuda),
        (NCCL, "nccl", versions.nccl),
        (CUDNN, "cudnn", versions.cudnn),
    )
    for field, name, actual in fixed_by_stack:
        if stack is None or getattr(stack, name) is None:
            yield field.of(actual)
    yield PYTHON.of(versions.venv_python)


_SAME_GPUS = "ranks on unlike GPUs wait for the slowest: put these hosts into a group of their own"
GPU_MODEL = field_of("gpu_model", "the GPUs' names", _SAME_GPUS, Status.FAILED)
VBIOS = field_of("vbios", "the GPUs' VBIOS", "have the vendor's firmware package installed there, then reboot")
GPU_SETTINGS = field_of(
    "gpu_settings", "ECC, MIG, persistence, compute mode, power limit", "set it there as on the others"
)


GPU_ORDER = field_of(
    "gpu_order",
    "the GPUs' bus addresses, in the order of their numbers",
    "a rank's GPU is another one there: compare the slots, the firmware's settings and CUDA_DEVICE_ORDER",
)


@compares(GPU_MODEL, VBIOS, GPU_SETTINGS, GPU_ORDER, reads=("gpus",), unread=(GPU_MODEL,))
def gpus(host: Subject, gpus: Gpus) -> Values:
    yield GPU_MODEL.of(_counted([gpu.name for gpu in gpus.devices]))
    yield VBIOS.of(_distinct([gpu.vbios_version for gpu in gpus.devices]))
    # one GPU less is a finding of its own
    yield GPU_ORDER.of(" ".join(gpu.bus_id or "?" for gpu in gpus.devices), counted(len(gpus.devices), "GPU"))
    tuning = host.wanted.tuning.gpu if host.wanted else None
    settings: dict[str, list[str | None]] = {
        "ecc": [_text(gpu.ecc_mode_current) for gpu in gpus.devices],
        "mig": [_text(gpu.mig_mode) for gpu in gpus.devices],
        "persistence": [_text(gpu.persistence_mode) for gpu in gpus.devices],
        "compute mode": [gpu.compute_mode for gpu in gpus.devices],
        "power limit": [_text(gpu.power_limit_w) for gpu in gpus.devices],
    }
    if tuning and tuning.persistence:
        del settings["persistence"]
    if tuning and tuning.power_limit_w:
        del settings["power limit"]
    for name, given in settings.items():
        yield GPU_SETTINGS.of(_distinct(given), name)


def _text(value: object) -> str | None:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else None if value is None else f"{value}"


KERNEL = field_of("kernel", "the running kernel", "install the others' kernel there and boot it")
OS = field_of("os", "the distribution", "bring the hosts to one release")


@compares(KERNEL, OS, reads=("kernel",), unread=(KERNEL,))
def kernel(host: Subject, kernel: Kernel) -> Values:
    yield KERNEL.of(kernel.release)
    yield OS.of(kernel.os_name or kernel.os_id)


SYSCTL = field_of("sysctl", "kernel settings that no tuning sets", "set it in the tuning, then `nodectl provision`")


@compares(SYSCTL, reads=("sysctl",))
def sysctls(host: Subject, live: Mapping[str, Sysctl]) -> Values:
    fixed = host.wanted.tuning.sysctl if host.wanted else {}
    for key, setting in live.items():
        if key not in fixed and key not in _BY_SIZE:
            yield SYSCTL.of(setting.value, key)


KERNEL_KNOBS = field_of("kernel_knobs", "governor, huge pages, SMT", "set it there as on the others")


@compares(KERNEL_KNOBS, reads=("kernel_knobs",))
def knobs(host: Subject, knobs: KernelKnobs) -> Values:
    yield KERNEL_KNOBS.of(" ".join(sorted(knobs.governors)) or None, "governor")
    yield KERNEL_KNOBS.of(knobs.transparent_hugepage, "huge pages")
    yield KERNEL_KNOBS.of(knobs.smt, "SMT")


NIC_FIRMWARE = field_of("nic_firmware", "firmware of the interfaces, by driver", "update it there, then reboot")
NICS = field_of("nics", "interfaces that are up, and their rates", "look at `ip link` and `ethtool` there")
MTU = field_of("mtu", "MTU, by interface", "set one MTU on all hosts, and on every switch between", Status.FAILED)


@compares(NIC_FIRMWARE, NICS, MTU, reads=("nics",))
def nics(host: Subject, nics: Mapping[str, Nic]) -> Values:
    firmware: dict[str, list[str | None]] = defaultdict(list)
    rates = []
    for nic in nics.values():
        if nic.driver and nic.kind is None:
            firmware[nic.driver].append(nic.firmware.split()[0] if nic.firmware else None)
            if nic.state == "up":
                rates.append(f"{nic.driver} {nic.speed_mbit or '?'} Mbit/s")
        if not (host.wanted and host.wanted.tuning.nic.mtu) and is_own(nic):
            yield MTU.of(str(nic.mtu), nic.name)
    for driver, versions in firmware.items():
        yield NIC_FIRMWARE.of(_distinct(versions), driver)
    yield NICS.of(_counted(rates))


def is_own(nic: Nic) -> bool:
    """In use, and not one that containers or virtual machines made."""
    return bool(nic.addresses) and not nic.name.startswith(VIRTUAL) and nic.kind not in ("bridge", "tun", "dummy")


IB_FIRMWARE = field_of(
    "ib_firmware", "firmware of RDMA devices, by board", "update it (`mlxfwmanager`), then reset them"
)
IB_PORTS = field_of("ib_ports", "active RDMA ports and their rates", "look at `ibstat` there", Status.FAILED)
IB_SPARE = field_of(
    "ib_spare_ports",
    "active RDMA ports and their rates, where they are more than the profile names",
    "look at `ibstat` there",
)


@compares(IB_FIRMWARE, IB_PORTS, IB_SPARE, reads=("ib_ports",))
def ports(host: Subject, ports: tuple[IbPort, ...]) -> Values:
    firmware: dict[str, list[str | None]] = defaultdict(list)
    for port in ports:
        if board := port.board_id or port.type:  # ibstat has no board, and the device's type
            firmware[board].append(port.firmware)
    for board, versions in firmware.items():
        yield IB_FIRMWARE.of(_distinct(versions), board)
    active = [port for port in ports if is_active(port)]
    rates = [f"{port.link_layer} {port.rate_gbit_s:g} Gbit/s" for port in active if port.rate_gbit_s]
    if not rdma_of_profile(host):
        yield IB_PORTS.of(_counted(rates))
    elif has_spare_ports(host):
        # those that the profile names are there; one of the others is down on this host only
        yield IB_SPARE.of(_counted(rates))


ACS = field_of("acs", "PCIe access control", "switch it on all bare-metal hosts alike: off for peer traffic")


@compares(ACS, reads=("pcie",), unread=(ACS,))
def bridges(host: Subject, pcie: Pcie) -> Values:
    if not (host.wanted and host.wanted.tuning.gpu.acs):
        yield ACS.of("redirecting" if any(bridge.redirects for bridge in pcie.bridges) else "off")


CPU = field_of("cpu", "processors and NUMA nodes", "compare the firmware's settings; or give it its own group")


@compares(CPU, reads=("cpu", "numa"), unread=(CPU,))
def cpu(host: Subject, cpu: Cpu) -> Values:
    numa = host.fact("numa", Numa)
    nodes = len(numa.nodes) if numa else cpu.numa_nodes
    yield CPU.of(f"{cpu.sockets} x {cpu.model}, {counted(cpu.threads, 'thread')}, {counted(nodes, 'NUMA node')}")


MEMORY = field_of("memory", "installed memory", "look for a missing module (`ipmitool sel list`)")


@compares(MEMORY, reads=("memory",), unread=(MEMORY,))
def memory(host: Subject, memory: Memory) -> Values:
    yield MEMORY.of(f"{memory.installed_gib} GiB")


MOUNTS = field_of("mounts", "network file systems and their options", "mount what the others have, as they have it")


@compares(MOUNTS, reads=("mounts",))
def mounts(host: Subject, mounts: Mounts) -> Values:
    for mount in mounts.mounts:
        if mount.kind in file_systems.NETWORK:
            kept = sorted(option for option in mount.options if option.partition("=")[0] in _OPTIONS)
            yield MOUNTS.of(f"{mount.source} ({mount.kind}: {','.join(kept)})", mount.target)


NCCL_USER = field_of("nccl_user", "variables of `~/.nccl.conf`", "keep one ~/.nccl.conf on all hosts, or none")


@compares(NCCL_USER, reads=("nccl_files",))
def nccl_user(host: Subject, files: NcclFiles) -> Values:
    variables = sorted("=".join(each) for each in parse_nccl(files.user or "").items())
    yield NCCL_USER.of(", ".join(variables) or "none")


LOGIN_VARIABLES = field_of(
    "login_variables",
    "`NCCL_*`, `CUDA_*`, `LD_LIBRARY_PATH`, `LD_PRELOAD` in /etc/environment, profile.d and rc files",
    "keep one setting on all hosts, in the job's environment or the tuning; take the line out of that file",
)


@compares(LOGIN_VARIABLES, reads=("host_files",), unread=(LOGIN_VARIABLES,))
def login_variables(host: Subject, files: HostFiles) -> Values:
    # all in one value: a variable of one host only is a difference, too
    yield LOGIN_VARIABLES.of(", ".join(f"{each.name}={each.value} ({each.file})" for each in files.variables) or "none")


MODULES = field_of("modules", "modules of GPUs and RDMA", "load the same modules (/etc/modules-load.d)")


@compares(MODULES, reads=("modules",), unread=(MODULES,))
def modules(host: Subject, modules: Modules) -> Values:
    yield MODULES.of(" ".join(name for name in _MODULES if name in modules.loaded) or "none of them")


LIBRARIES = field_of("libraries", "NVIDIA's libraries of the system", "install the others' packages there")


@compares(LIBRARIES, reads=("libraries",))
def libraries(host: Subject, libraries: Libraries) -> Values:
    versions: dict[str, list[str | None]] = defaultdict(list)
    for library in libraries.libraries:
        versions[library.name.partition(".so")[0]].append(library.version)
    for name, given in versions.items():
        yield LIBRARIES.of(_distinct(given), name)


LIMITS = field_of("limits", "the limits of a session", "set them in the tuning, then `nodectl provision`")


@compares(LIMITS, reads=("limits",))
def limits(host: Subject, limits: SessionLimits) -> Values:
    wanted = host.wanted.tuning.limits if host.wanted else {}
    given = {"memlock": limits.memlock, "nofile": limits.nofile, "stack": limits.stack}
    yield from (LIMITS.of(value, name) for name, value in given.items() if name not in wanted)


def _distinct(values: list[str | None]) -> str | None:
    return ", ".join(sorted({value for value in values if value})) or None


def _counted(values: list[str | None] | list[str]) -> str | None:
    counts = Counter(value for value in values if value)
    return ", ".join(f"{number} x {value}" for value, number in sorted(counts.items())) or None

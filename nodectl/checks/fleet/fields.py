"""In which fields hosts of one kind are to agree, and what it means where one does not."""

from __future__ import annotations

from dataclasses import dataclass

from nodectl.checks.base import About
from nodectl.model.status import Status

# a field, and which one of several (a sysctl's key, an interface), empty where there is one
Key = tuple[str, str]
DUPLICATE = "fleet_duplicate"
ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class Field:
    """How a minority's finding is called, how bad it is, and what to do."""

    check: str
    looks_at: str
    remedy: str
    status: Status = Status.WARNING


def _fields(*fields: Field) -> dict[str, Field]:
    return {field.check.removeprefix("fleet_"): field for field in fields}


_SAME_STACK = "give the hosts one stack: set nodectl_stack, then `nodectl provision`"
_SAME_GPUS = "ranks on unlike GPUs wait for the slowest: put these hosts into a group of their own"
FIELDS = _fields(
    Field("fleet_driver", "the loaded driver", "install the others' driver, then reboot", Status.FAILED),
    Field("fleet_nccl", "NCCL of the launcher's environment", _SAME_STACK, Status.FAILED),
    Field("fleet_torch", "torch", _SAME_STACK, Status.FAILED),
    Field("fleet_cuda", "the CUDA that torch brings", _SAME_STACK, Status.FAILED),
    Field("fleet_cudnn", "the cuDNN that torch brings", _SAME_STACK),
    Field("fleet_python", "Python of the launcher's environment", _SAME_STACK),
    Field("fleet_gpu_model", "the GPUs' names", _SAME_GPUS, Status.FAILED),
    Field("fleet_vbios", "the GPUs' VBIOS", "have the vendor's firmware package installed there, then reboot"),
    Field("fleet_gpu_settings", "ECC, MIG, persistence, compute mode, power limit", "set it there as on the others"),
    Field("fleet_kernel", "the running kernel", "install the others' kernel there and boot it"),
    Field("fleet_os", "the distribution", "bring the hosts to one release"),
    Field("fleet_sysctl", "kernel settings that no tuning sets", "set it in the tuning, then `nodectl provision`"),
    Field("fleet_kernel_knobs", "governor, huge pages, SMT", "set it there as on the others"),
    Field("fleet_nic_firmware", "firmware of the interfaces, by driver", "update it there, then reboot"),
    Field("fleet_ib_firmware", "firmware of RDMA devices, by board", "update it (`mlxfwmanager`), then reset them"),
    Field("fleet_ib_ports", "active RDMA ports and their rates", "look at `ibstat` there", Status.FAILED),
    Field("fleet_nics", "interfaces that are up, and their rates", "look at `ip link` and `ethtool` there"),
    Field("fleet_mtu", "MTU, by interface", "set one MTU on all hosts, and on every switch between", Status.FAILED),
    Field("fleet_acs", "PCIe access control", "switch it on all bare-metal hosts alike: off for peer traffic"),
    Field("fleet_cpu", "processors and NUMA nodes", "compare the firmware's settings; or give it its own group"),
    Field("fleet_memory", "installed memory", "look for a missing module (`ipmitool sel list`)"),
    Field("fleet_mounts", "network file systems and their options", "mount what the others have, as they have it"),
    Field("fleet_modules", "modules of GPUs and RDMA", "load the same modules (/etc/modules-load.d)"),
    Field("fleet_libraries", "NVIDIA's libraries of the system", "install the others' packages there"),
    Field("fleet_limits", "the limits of a session", "set them in the tuning, then `nodectl provision`"),
)  # fmt: skip

ABOUT = (
    *(
        About(each.check, each.looks_at, f"{each.status}: not as most hosts have it; a warning without a majority")
        for each in FIELDS.values()
    ),
    About(DUPLICATE, "addresses, GPU serials and UUIDs, port GUIDs", "two machines have the same"),
)

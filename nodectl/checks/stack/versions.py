"""What a job would load: torch and its libraries against the stack, and the driver's parts against one another."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges, judges_fact, provision, warning_unless
from nodectl.checks.network.infiniband import rdma_of_profile
from nodectl.common.counting import counted
from nodectl.facts.gpus import Gpus
from nodectl.facts.kernel import Kernel, Modules
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 30

_INSTALL = provision("pytorch")
_REBOOT = "reboot, or unload and load NVIDIA's modules when nothing runs: the packages changed under the loaded driver"
_MISMATCH = re.compile(r"(?i)driver/library version mismatch")
_NO_DRIVER = re.compile(r"(?i)couldn't communicate with the NVIDIA driver|driver not loaded|driver is not loaded")


VERSIONS = Check(
    "versions",
    fires="another; a driver too old",
    roles=("pytorch",),
    roles_of={"driver": ("nvidia_driver",)},
)


@judges_fact(
    Versions,
    VERSIONS,
    reads=("versions",),
    unread="the stack's versions",
    or_absent=True,
    variables=("nodectl_driver",),
)
def versions(host: Subject, versions: Versions) -> Iterator[Finding]:
    """Compare torch, the libraries of its wheel and the driver with the stack's versions."""
    if host.wanted is None:
        return
    stack = host.wanted.stack
    rows = (
        ("torch", stack.torch, versions.torch),
        ("cuda", stack.cuda, versions.cuda),
        ("cudnn", stack.cudnn if versions.cudnn else None, versions.cudnn),
        ("nccl", stack.nccl, versions.nccl),
    )
    for name, wanted, actual in rows:
        if wanted is not None:
            shown = actual or versions.unavailable.get(name, "none")
            # nobody looked into the environment; or an older wheel bundles the library, and its files name no version
            is_unknown = actual is None and (not versions.venv or (name != "torch" and versions.torch is not None))
            status = Status.UNKNOWN if is_unknown else failed_unless(same(wanted, actual))
            yield host.finding(VERSIONS, status, name, expected=wanted, actual=shown, remedy=_INSTALL)
    if stack.driver is not None:
        yield _driver(host, stack.driver.min, versions)


def agree(one: str, other: str | None) -> bool:
    """Return whether the two are the `same`, whichever says more."""
    return same(one, other) or (other is not None and same(other, one))


def same(wanted: str, actual: str | None) -> bool:
    """Return whether the version is wanted.

    A build (+cu118) and a patch level count only where the profile names them.
    """
    if actual is None:
        return False
    plain = actual if "+" in wanted else actual.split("+")[0]
    return plain == wanted or plain.startswith(f"{wanted}.")


def _driver(host: Subject, lowest: str, versions: Versions) -> Finding:
    expected = f"{lowest} or newer"
    if versions.driver is None:
        reason = versions.unavailable.get("driver", "none is loaded")
        is_kept = versions.driver_installed or host.variables.get("nodectl_driver") == "keep"
        remedy = DRIVER_LOADED.remedy if is_kept else provision("nvidia_driver")
        return host.finding(VERSIONS, Status.UNKNOWN, "driver", expected=expected, actual=reason, remedy=remedy)
    enough = numbers(versions.driver) >= numbers(lowest)
    remedy = "install a newer driver, or choose a stack that this one can run: `nodectl profile validate`"
    return host.finding(
        VERSIONS, failed_unless(enough), "driver", expected=expected, actual=versions.driver, remedy=remedy
    )


def numbers(version: str) -> tuple[int, ...]:
    """Return `580.95.05-grid` as (580, 95, 5)."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,18}", version.split("-")[0].split("+")[0]))


DRIVER_LOADED = Check(
    "driver_loaded",
    fires="nvidia-smi cannot talk to the driver, or a driver is installed and not loaded",
    expected="loaded",
    remedy="`modprobe nvidia` there says why: look for another kernel, Secure Boot or nouveau, then reboot",
    action="reboot",
    roles=("nvidia_driver",),
)
DRIVER_LIBRARY = Check(
    "driver_library",
    fires="the library is not of the loaded driver's version",
    expected="one version",
    remedy=_REBOOT,
    action="reboot",
    roles=("nvidia_driver",),
)
DRIVER_PENDING = Check(
    "driver_pending",
    fires="warning: another driver comes with the next boot",
    remedy=_REBOOT,
    action="reboot",
    roles=("nvidia_driver",),
)
DRIVER_CUDA = Check(
    "driver_cuda",
    fires="the driver is too old for the environment's CUDA",
    remedy="install a newer driver, or choose a stack with an older CUDA",
    roles=("nvidia_driver",),
)


@judges(DRIVER_LOADED, DRIVER_LIBRARY, DRIVER_PENDING, DRIVER_CUDA, reads=("gpus", "versions", "kernel", "modules"))
def driver(host: Subject) -> Iterator[Finding]:
    """Require that the loaded driver, the one on disk and its library are one, and take the stack's CUDA."""
    gpus, versions = host.fact("gpus", Unread), host.fact("versions", Versions)
    if host.gpus == 0:
        return
    refusal = gpus.reason if gpus else ""
    mismatch, missing = _MISMATCH.search(refusal), _NO_DRIVER.search(refusal)
    if mismatch:
        yield host.finding(DRIVER_LIBRARY, Status.FAILED, actual=refusal)
    if missing:
        yield host.finding(DRIVER_LOADED, Status.FAILED, actual=refusal)
    if versions and versions.driver is None and host.gpus and not missing:
        modules, installed = host.fact("modules", Modules), versions.driver_installed
        if installed and modules and "nvidia" not in modules.loaded:
            yield host.finding(DRIVER_LOADED, Status.FAILED, actual=f"{installed} is installed and not loaded")
        else:
            reason = versions.unavailable.get("driver", "no version of a loaded driver is told")
            remedy = "look at /proc/driver/nvidia/version there"
            yield host.finding(DRIVER_LOADED, Status.UNKNOWN, actual=reason, remedy=remedy)
    if versions and versions.driver is not None:
        yield host.finding(DRIVER_LOADED, Status.OK, actual=versions.driver)
        yield from () if mismatch else _library_of_driver(host, versions, versions.driver)
        yield from _pending(host, versions, versions.driver)
        yield from _cuda(host, versions)


def _is_wsl(host: Subject) -> bool:
    kernel = host.fact("kernel", Kernel)
    return kernel is not None and kernel.is_wsl


def _library_of_driver(host: Subject, versions: Versions, loaded: str) -> Iterator[Finding]:
    """nvidia-smi names its library's version with fewer parts."""
    if _is_wsl(host):
        yield host.finding(
            DRIVER_LIBRARY, Status.SKIPPED, actual=f"WSL2: {loaded} is of Windows' driver, which counts apart"
        )
        return
    library = versions.driver_library
    if library is None:
        reason = versions.unavailable.get("driver_library")
        # drivers before 535 do not print it, and a recording may lack the command
        lacks = reason is None or "not printed" in reason or "not in the recording" in reason
        if not lacks:
            remedy = "run `nvidia-smi --version` there"
            yield host.finding(DRIVER_LIBRARY, Status.UNKNOWN, expected=loaded, actual=reason or "", remedy=remedy)
        return
    short = min(len(numbers(library)), len(numbers(loaded)))
    status = failed_unless(numbers(library)[:short] == numbers(loaded)[:short])
    yield host.finding(DRIVER_LIBRARY, status, expected=loaded, actual=library)


def _pending(host: Subject, versions: Versions, loaded: str) -> Iterator[Finding]:
    installed = versions.driver_installed
    if installed is None:
        reason = versions.unavailable.get("driver_installed", "not installed")
        status = Status.SKIPPED if "not in the recording" in reason or "not installed" in reason else Status.UNKNOWN
        remedy = "run `modprobe --show-depends nvidia` there, then `modinfo -F version` of that module"
        yield host.finding(DRIVER_PENDING, status, expected=loaded, actual=reason, remedy=remedy)
        return
    actual = installed if installed == loaded else f"{installed} comes with the next boot"
    yield host.finding(DRIVER_PENDING, warning_unless(installed == loaded), expected=loaded, actual=actual)


def _cuda(host: Subject, versions: Versions) -> Iterator[Finding]:
    """Within one major version of CUDA an older driver runs newer programs; never across."""
    wanted = versions.cuda or (host.wanted.stack.cuda if host.wanted else None)
    if wanted is None:
        return
    expected = f"CUDA {wanted.split('.')[0]} or newer"
    if versions.driver_cuda is None:
        reason = versions.unavailable.get("driver_cuda")
        if reason is None:
            return
        remedy = "look at the head of `nvidia-smi` there"
        yield host.finding(DRIVER_CUDA, Status.UNKNOWN, expected=expected, actual=reason, remedy=remedy)
        return
    enough = numbers(versions.driver_cuda)[0] >= numbers(wanted)[0]
    yield host.finding(DRIVER_CUDA, failed_unless(enough), expected=expected, actual=versions.driver_cuda)


MANAGED_DRIVER = Check(
    "managed_driver",
    fires="not of the stack's branch",
    roles=("nvidia_driver",),
)


@judges(MANAGED_DRIVER, reads=("versions",), variables=("nodectl_driver",))
def managed_driver(host: Subject) -> Iterator[Finding]:
    """Compare the driver with its lowest version where it is kept.

    One that nodectl installs with the stack's branch.
    """
    wanted = host.wanted.stack.driver if host.wanted else None
    if wanted is None or host.variables.get("nodectl_driver") != "manage":
        return
    versions, branch = host.facts.get("versions"), f"branch {wanted.branch}"
    yield from host.unread(MANAGED_DRIVER, versions, branch)
    if not isinstance(versions, Versions):
        return
    if versions.driver is None:
        reason = versions.unavailable.get("driver", "none is loaded")
        remedy = provision("nvidia_driver")
        yield host.finding(MANAGED_DRIVER, Status.UNKNOWN, "branch", expected=branch, actual=reason, remedy=remedy)
        return
    status, actual = failed_unless(versions.driver.split(".")[0] == wanted.branch), versions.driver
    remedy = f"{provision('nvidia_driver')}, then reboot"
    yield host.finding(MANAGED_DRIVER, status, "branch", expected=branch, actual=actual, remedy=remedy, action="reboot")


GPU_MODULES = Check(
    "gpu_modules",
    fires="nvidia or nvidia_uvm not loaded, or nouveau",
    expected="nvidia, nvidia_uvm",
    roles=("nvidia_driver",),
)
GPUDIRECT = Check(
    "gpudirect",
    fires="warning: neither nvidia_peermem nor the open modules",
    expected="nvidia_peermem, or the open modules (DMA-BUF)",
    remedy="`modprobe nvidia-peermem`, and name it in /etc/modules-load.d",
    roles=("rdma",),
)


@judges_fact(
    Modules,
    GPU_MODULES,
    reads=("modules", "gpus", "kernel"),
    or_absent=True,
    borrowed="kernel",
    where=lambda host: bool(host.gpus),
)
def modules(host: Subject, modules: Modules) -> Iterator[Finding]:
    """CUDA needs nvidia_uvm; nouveau takes the cards."""
    if _is_wsl(host):
        yield host.finding(GPU_MODULES, Status.SKIPPED, actual="WSL2: Windows' driver has the GPUs, behind /dev/dxg")
        return
    lacking = [name for name in ("nvidia", "nvidia_uvm") if name not in modules.loaded]
    nouveau = "nouveau" in modules.loaded
    if nouveau:
        actual, remedy = "nouveau holds the cards", "blacklist nouveau, rebuild the initramfs, then reboot"
    else:
        actual = f"not loaded: {', '.join(lacking)}" if lacking else "loaded"
        remedy = "`modprobe nvidia_uvm`; nvidia-modprobe or nvidia-persistenced loads it at each boot"
    status, gpus = failed_unless(not lacking and not nouveau), host.fact("gpus", Gpus)
    if "nvidia" in lacking and gpus and gpus.count:
        status, actual = Status.UNKNOWN, f"{actual}; but nvidia-smi shows {counted(gpus.count, 'GPU')}"
        remedy = "look at `lsmod` there: the list is cut"
    yield host.finding(GPU_MODULES, status, actual=actual, remedy=remedy)


@judges(GPUDIRECT, reads=("modules", "lab", "versions"))
def gpudirect(host: Subject) -> Iterator[Finding]:
    """NVIDIA recommends DMA-BUF, which the open modules bring; the closed ones need nvidia_peermem."""
    modules, versions = host.fact("modules", Modules), host.fact("versions", Versions)
    if modules is None or not host.gpus or host.borrows("kernel") or not rdma_of_profile(host):
        return
    flavour = versions.driver_flavour if versions else None
    status, actual = Status.UNKNOWN, "the driver's kind is not known"
    if any("peermem" in name or name == "nv_peer_mem" for name in modules.loaded):
        status, actual = Status.OK, "nvidia_peermem"
    elif flavour == "open":
        status, actual = Status.OK, "the open modules"
    elif flavour:
        status, actual = Status.WARNING, "neither: data goes through the processors' memory"
    yield host.finding(GPUDIRECT, status, actual=actual)

"""NVSwitch needs its fabric manager: running, of the driver's very version, and done with every GPU."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges, judges_fact
from nodectl.checks.gpu.rules import Fault, gpu_check
from nodectl.facts.fabric_manager import FabricManager
from nodectl.facts.gpus import Gpu
from nodectl.facts.packages import Packages
from nodectl.facts.units import Units
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 110

_START = "`systemctl enable --now nvidia-fabricmanager`; its log is /var/log/fabricmanager.log"
_UNIT = "nvidia-fabricmanager"
# NVIDIA's rhel repositories have it under both names
_PACKAGES = (_UNIT, "nvidia-fabric-manager")


def _has_nvswitch(host: Subject) -> bool:
    return bool(host.wanted and host.wanted.hardware.nvswitch)


FABRIC_MANAGER = Check(
    "fabric_manager",
    looks_at="systemd, where the profile has NVSwitch",
    fires="not active; warning: not enabled",
    expected="active",
    remedy=_START,
)
FABRIC_MANAGER_VERSION = Check(
    "fabric_manager_version",
    looks_at="nv-fabricmanager",
    fires="not installed, or not of the driver's version",
    expected="the driver's",
    action="reboot",
    roles=("fabric_manager",),
)
FABRIC_MANAGER_HOLD = Check(
    "fabric_manager_hold",
    looks_at="dpkg's holds or dnf's locks, live on hosts that nodectl provisioned, where the profile has NVSwitch",
    fires="warning: held, and the driver is not, or the reverse: an upgrade moves one and leaves the other behind",
    expected="driver and fabric manager held, or neither",
    remedy="`nodectl provision --tags fabric_manager` holds both; for an upgrade of both take both holds off",
    roles=("fabric_manager",),
)


@judges(FABRIC_MANAGER, FABRIC_MANAGER_VERSION, reads=("units", "fabric_manager", "versions"))
def manager(host: Subject) -> Iterator[Finding]:
    """Only where the profile has NVSwitch: elsewhere it has nothing to do."""
    if not _has_nvswitch(host):
        return
    yield _running(host)
    manager = host.facts.get("fabric_manager")
    remedy = "install the fabric manager of the driver's version: `nodectl provision --tags fabric_manager`"
    yield from host.lacks(FABRIC_MANAGER_VERSION, manager, expected="the driver's version", remedy=remedy)
    if isinstance(manager, FabricManager):
        yield _version(host, manager.version)


@judges_fact(Packages, FABRIC_MANAGER_HOLD, reads=("packages",), unread="held alike", where=_has_nvswitch)
def held_alike(host: Subject, packages: Packages) -> Iterator[Finding]:
    """Only where both are packages: a driver of NVIDIA's own installer is moved by no upgrade."""
    parts = [package for package in packages.installed.values() if package.is_driver]
    managers = [part for part in parts if part.name.startswith(_PACKAGES)]
    driver = [part for part in parts if part not in managers]
    if not managers or not driver:
        return
    held = sum(part.held for part in parts)
    if held in (0, len(parts)):
        yield host.finding(FABRIC_MANAGER_HOLD, Status.OK, actual="both held" if held else "neither held")
        return
    loose = sorted(part.name for part in parts if not part.held)
    more = f" and {len(loose) - 3} more" if len(loose) > 3 else ""
    actual = f"{held} of {len(parts)} packages held, not {', '.join(loose[:3])}{more}"
    yield host.finding(FABRIC_MANAGER_HOLD, Status.WARNING, actual=actual)


def _running(host: Subject) -> Finding:
    units = host.facts.get("units")
    if not isinstance(units, Units):
        # in a container systemd is not there, and the manager may well run outside of it
        unseen = [*host.unread(FABRIC_MANAGER, units, promised=isinstance(units, Unread) and units.kind == "unknown")]
        return unseen[0] if unseen else host.finding(FABRIC_MANAGER, Status.UNKNOWN, actual="not asked for")
    unit = units.units.get(_UNIT)
    if unit is None:
        remedy = f"look at `systemctl status {_UNIT}` there"
        return host.finding(FABRIC_MANAGER, Status.UNKNOWN, actual="systemctl's answer lacks it", remedy=remedy)
    if unit.load == "not-found":
        status, actual = Status.FAILED, "no such unit"
    elif unit.active != "active":
        status = Status.FAILED
        actual = f"{unit.active} ({unit.result})" if unit.result not in ("", "success") else unit.active
    elif unit.enabled in ("", "enabled", "static", "enabled-runtime"):
        status, actual = Status.OK, "active"
    else:
        status, actual = Status.WARNING, f"active, but {unit.enabled}: gone after the next boot"
    return host.finding(FABRIC_MANAGER, status, actual=actual)


def _version(host: Subject, version: str) -> Finding:
    versions = host.fact("versions", Versions)
    driver = versions.driver if versions else None
    if driver is None:
        actual, remedy = f"{version}; the driver's is not known", "look at /proc/driver/nvidia/version there"
        return host.finding(FABRIC_MANAGER_VERSION, Status.UNKNOWN, actual=actual, remedy=remedy)
    status = failed_unless(version == driver)
    remedy = "install both of one version and hold them: `nodectl provision --tags nvidia_driver,fabric_manager`"
    return host.finding(FABRIC_MANAGER_VERSION, status, expected=driver, actual=version, remedy=remedy)


@gpu_check(
    "gpu_fabric",
    "fabric_state",
    looks_at="nvidia-smi -q, of GPUs on NVSwitch from Hopper on",
    fires="not registered with NVSwitch",
    expected="Completed, Success",
    remedy=f"{_START}; then reset the GPUs",
    action="reset GPU",
    only_if=_has_nvswitch,
)
def fabric(host: Subject, gpu: Gpu) -> Fault | None:
    """`Completed` is the end of the registration with NVSwitch; a status says how it ended.

    A GPU that is not registered fails with `system not yet initialized`.
    """
    state, status = (gpu.fabric_state or "").strip(), (gpu.fabric_status or "").strip()
    if state.lower() != "completed":
        return Fault(Status.FAILED, state or "no state")
    if status.lower() not in ("", "n/a", "success"):
        return Fault(Status.FAILED, f"completed with {status}")
    return None

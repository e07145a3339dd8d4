"""Checks the fabric manager that NVSwitch needs: running, of the driver's exact version, every GPU registered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges, judges_fact
from nodectl.checks.gpu.rules import Fault, gpu_check, gpus_of
from nodectl.common.counting import counted
from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.gpus import Gpu
from nodectl.facts.packages import Packages
from nodectl.facts.services import Units
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
    fires="not active; warning: not enabled",
    expected="active",
    remedy=_START,
)
FABRIC_MANAGER_VERSION = Check(
    "fabric_manager_version",
    fires="not installed, or not of the driver's version",
    expected="the driver's",
    roles=("fabric_manager",),
)
FABRIC_MANAGER_HOLD = Check(
    "fabric_manager_hold",
    fires="warning: held, and the driver is not, or the reverse: an upgrade moves one and leaves the other behind",
    expected="driver and fabric manager held, or neither",
    remedy="`nodectl provision --tags fabric_manager` holds both; for an upgrade of both take both holds off",
    roles=("fabric_manager",),
)


@judges(FABRIC_MANAGER, FABRIC_MANAGER_VERSION, reads=("units", "fabric_manager", "versions"))
def manager(host: Subject) -> Iterator[Finding]:
    """Require the fabric manager of a host whose profile has NVSwitch; without NVSwitch it has nothing to do."""
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
    """Compare the holds of driver and manager if both are packages; no upgrade moves a driver of NVIDIA's installer."""
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
        # a container has no systemd, and the manager may run outside of it
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
    remedy = (
        f"install the fabric manager of version {driver} and hold both (`nodectl provision --tags fabric_manager`), "
        f"then `systemctl restart {_UNIT}`"
    )
    return host.finding(FABRIC_MANAGER_VERSION, status, expected=driver, actual=version, remedy=remedy)


# GPUs whose NVSwitches are in other trays: no fabric manager runs on the node
_RACK = re.compile(r"\bGB[23]00\b")
_RACK_REMEDY = "look at the rack's NVLink switches and partition (NMX controller); then reset the GPUs"
# the only values that a GPU shows once it has joined its fabric
_JOINED = {
    "state": "completed",
    "status": "success",
    "health": "healthy",
    "bandwidth": "full",
    "route_recovery": "false",
    "route_unhealthy": "false",
    "access_timeout": "false",
    "configuration": "none",
}


@gpu_check(
    "gpu_fabric",
    "fabric_state",
    fires="not registered with NVSwitch, not healthy there, or in another clique or cluster than its siblings",
    expected="Completed, Success, Healthy; one clique and one cluster",
    remedy=f"{_START}; then reset the GPUs",
    action="reset GPU",
    only_if=lambda host: not host.wanted or host.wanted.hardware.link != "pcie",
)
def fabric(host: Subject, gpu: Gpu) -> Fault | None:
    """Require that a GPU has completed its registration with NVSwitch, with a good status and health.

    A GPU that is not registered fails with `system not yet initialized`.
    """
    printed = {name: str(getattr(gpu, f"fabric_{name}") or "") for name in _JOINED}
    refused = {name: gpu.unavailable.get(f"fabric_{name}", "") for name in _JOINED}
    states = {name: (printed[name] or refused[name]).strip() for name in _JOINED}
    # during the registration there is no status yet
    wrong = {name: state for name, state in states.items() if state.lower() not in ("", "n/a", _JOINED[name])}
    remedy = _RACK_REMEDY if _RACK.search(gpu.name or "") else ""
    if wrong:
        actual = ", ".join(f"{name.replace('_', ' ')}: {state}" for name, state in wrong.items())
        return Fault(Status.FAILED, actual, remedy=remedy)
    siblings = Counter(member_of(other) for other in gpus_of(host) if other.fabric_state and other.name == gpu.name)
    most, many = siblings.most_common(1)[0]
    if member_of(gpu) == most:
        return None
    usual = f"{most}, as on {many} of {counted(siblings.total(), 'GPU')}"
    return Fault(Status.FAILED, f"{member_of(gpu)}; expected: {usual}", remedy=remedy)


def member_of(gpu: Gpu) -> str:
    """Return the clique and the cluster to which a GPU belongs."""
    return f"clique {gpu.fabric_clique_id} of cluster {gpu.fabric_cluster_uuid}"

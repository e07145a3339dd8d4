"""NVSwitch needs its fabric manager: running, of the driver's very version, and done with every GPU."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import About, Check, Subject, held
from nodectl.checks.gpu.rules import Fault, Rule, gpus_of, judged
from nodectl.facts.fabric_manager import FabricManager
from nodectl.facts.units import Units
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.gpus import Gpu
from nodectl.model.status import Status

_START = "`systemctl enable --now nvidia-fabricmanager`; its log is /var/log/fabricmanager.log"
_UNIT = "nvidia-fabricmanager"


def manager(host: Subject) -> Iterator[Finding]:
    """Only where the profile has NVSwitch: elsewhere it has nothing to do."""
    if host.wanted is None or not host.wanted.hardware.nvswitch:
        return
    yield _running(host)
    found = host.facts.get("fabric_manager")
    expected = "the driver's version"
    if isinstance(found, Unread):
        status = Status.FAILED if found.kind == "absent" else Status.UNKNOWN
        remedy = "install the fabric manager of the driver's version: `nodectl provision --tags fabric_manager`"
        yield host.finding(
            "fabric_manager_version", status, expected=expected, actual=found.reason, remedy=remedy, action="reboot"
        )
    if isinstance(found, FabricManager):
        yield _version(host, found)


def _running(host: Subject) -> Finding:
    units, expected = host.facts.get("units"), "active"
    if not isinstance(units, Units):
        reason = f"{units.kind}: {units.reason}" if isinstance(units, Unread) else "not asked for"
        remedy = "look at `systemctl status nvidia-fabricmanager` there"
        return host.finding("fabric_manager", Status.UNKNOWN, expected=expected, actual=reason, remedy=remedy)
    unit = units.units.get(_UNIT)
    if unit is None or unit.load == "not-found":
        actual = "no such unit"
    elif unit.active == "active" and unit.enabled in ("", "enabled", "static", "enabled-runtime"):
        return host.finding("fabric_manager", Status.OK, expected=expected, actual="active")
    elif unit.active == "active":
        actual = f"active, but {unit.enabled}: gone after the next boot"
        return host.finding("fabric_manager", Status.WARNING, expected=expected, actual=actual, remedy=_START)
    else:
        actual = f"{unit.active} ({unit.result})" if unit.result not in ("", "success") else unit.active
    return host.finding("fabric_manager", Status.FAILED, expected=expected, actual=actual, remedy=_START)


def _version(host: Subject, found: FabricManager) -> Finding:
    versions = host.fact("versions", Versions)
    driver = versions.driver if versions else None
    if driver is None:
        actual, remedy = f"{found.version}; the driver's is not known", "look at /proc/driver/nvidia/version there"
        return host.finding(
            "fabric_manager_version", Status.UNKNOWN, expected="the driver's", actual=actual, remedy=remedy
        )
    remedy = "install both of one version and hold them: `nodectl provision --tags nvidia_driver,fabric_manager`"
    return host.finding(
        "fabric_manager_version",
        held(found.version == driver),
        expected=driver,
        actual=found.version,
        remedy=remedy,
        action="reboot",
    )


def _fabric(host: Subject, gpu: Gpu) -> Fault | None:
    """`Completed` is the end of the registration with NVSwitch; a status says how it ended."""
    state, status = (gpu.fabric_state or "").strip(), (gpu.fabric_status or "").strip()
    if state.lower() != "completed":
        return Fault(Status.FAILED, state or "no state")
    if status.lower() not in ("", "n/a", "success"):
        return Fault(Status.FAILED, f"completed with {status}")
    return None


RULE = Rule(
    "gpu_fabric",
    "fabric_state",
    "nvidia-smi -q, of GPUs on NVSwitch from Hopper on",
    "not registered with NVSwitch",
    "Completed, Success",
    f"{_START}; then reset the GPUs",
    _fabric,
    "reset GPU",
)


def registered(host: Subject) -> Iterator[Finding]:
    """A GPU that is not registered fails with `system not yet initialized`."""
    if host.wanted is not None and host.wanted.hardware.nvswitch and gpus_of(host):
        yield from judged(host, (RULE,))


CHECKS: tuple[Check, ...] = (manager, registered)
ABOUT = (
    About("fabric_manager", "systemd, where the profile has NVSwitch", "not active; warning: not enabled"),
    About("fabric_manager_version", "nv-fabricmanager", "not installed, or not of the driver's version"),
    RULE.about,
)

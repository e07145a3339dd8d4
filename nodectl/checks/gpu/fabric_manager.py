"""Checks the fabric manager that NVSwitch needs: running, of the driver's exact version, every GPU registered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from nodectl.checks.check import Check, Subject, failed_unless, judges, judges_fact
from nodectl.checks.gpu.nvidia_codes import sxid_codes
from nodectl.checks.gpu.rules import Fault, gpu_check, gpus_of
from nodectl.common.counting import counted
from nodectl.common.resources import data_dir, table
from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.gpus import Gpu
from nodectl.facts.packages import Packages
from nodectl.facts.parsers.linux.dmesg import Dmesg
from nodectl.facts.parsers.nvidia.fabricmanager_log import FabricManagerEvent, FabricManagerLog
from nodectl.facts.services import Units
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 110

_START = "`systemctl enable --now nvidia-fabricmanager`; its log is /var/log/fabricmanager.log"
_UNIT = "nvidia-fabricmanager"
_DIGITS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_WORDING, _SHOWN, _MOST_KINDS = 80, 200, 6
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


FABRIC_MANAGER_LOG = Check(
    "fabric_manager_log",
    fires="it stopped, lacks a switch or a GPU, or a switch had a fatal error; warning: another complaint since boot",
    expected="no complaint since the boot",
    remedy="look at /var/log/fabricmanager.log there",
)
_MESSAGES = data_dir() / "nvidia" / "fabric_manager.yml"


@judges_fact(
    FabricManagerLog,
    FABRIC_MANAGER_LOG,
    reads=("fabric_manager_log", "kernel_events"),
    unread="fabric manager's log",
    where=_has_nvswitch,
)
def complaints(host: Subject, log: FabricManagerLog) -> Iterator[Finding]:
    """Report each kind of complaint once; NVSwitch errors that the kernel's log has are left to that log's check."""
    kernel = host.fact("kernel_events", Dmesg)
    kernel_codes = {event.code for event in kernel.events if event.kind == "sxid"} if kernel else set()
    kinds: dict[str, list[FabricManagerEvent]] = {}
    for event in log.events:
        if event.sxid is None or event.sxid not in kernel_codes:
            kinds.setdefault(_kind(event), []).append(event)
    yield from host.all_of(
        FABRIC_MANAGER_LOG,
        (_complaint(host, kind, events) for kind, events in list(kinds.items())[:_MOST_KINDS]),
        actual=f"none in {counted(log.lines, 'line')}",
    )


def _kind(event: FabricManagerEvent) -> str:
    """Return what lines of one cause have in common."""
    if event.sxid is not None:
        return f"SXid {event.sxid} {event.bus_id or ''}".strip()
    return str(_row(event.text).get("title") or _DIGITS.sub("#", event.text)[:_WORDING])


def _complaint(host: Subject, kind: str, events: list[FabricManagerEvent]) -> Finding:
    last, row = events[-1], _row(events[-1].text)
    when = f", last at {last.time}" if last.time else ""
    actual = f"{last.text[:_SHOWN]} ({counted(len(events), 'line')} since the boot{when})"
    status, action, remedy = Status(row.get("status", "warning")), row.get("action", "none"), row.get("remedy", "")
    if last.sxid is not None:
        listed = sxid_codes().get(last.sxid)
        is_fatal = any(event.severity == "fatal" for event in events) or (listed and listed.severity == "always fatal")
        status, action = (Status.FAILED, "reboot") if is_fatal else (Status.WARNING, "none")
        remedy = "drain, reset all GPUs together (fabric manager stopped), or reboot" if is_fatal else ""
        ports = sorted({event.port for event in events if event.port is not None})
        where = f"port {', '.join(map(str, ports))}" if ports else "its lines name no port"
        actual = f"{listed.name if listed else 'not in the list of NVIDIA'}, {where}: {actual}"
    return host.finding(
        FABRIC_MANAGER_LOG, status, kind, actual=actual, remedy=remedy, action=action, evidence=last.text
    )


def _row(text: str) -> Mapping[str, str]:
    return next((row for row in table(_MESSAGES)["messages"] if row["words"] in text), {})


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


def _may_have_fabric(host: Subject) -> bool:
    """Return whether the profile has NVSwitch or tells of no GPUs at all, or the NVSwitches are the rack's."""
    return host.gpus is None or _has_nvswitch(host) or any(_RACK.search(gpu.name or "") for gpu in gpus_of(host))


@gpu_check(
    "gpu_fabric",
    "fabric_state",
    fires="not registered with NVSwitch, not healthy there, or in another clique or cluster than its siblings",
    expected="Completed, Success, Healthy; one clique and one cluster",
    remedy=f"{_START}; then reset the GPUs",
    action="reset GPU",
    only_if=_may_have_fabric,
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

"""A reboot clears a fault; one that stands again in boot after boot is the hardware's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodectl.checks.check import Threshold
from nodectl.checks.counters import Previous
from nodectl.model.finding import Finding
from nodectl.model.status import Status

REBOOTS_LIMIT = Threshold("reboots_to_hardware", 2, "gpud: the same fault after two reboots is the hardware's")
_CURABLE = ("reset GPU", "reboot")
_FAULT_DAYS = 30

# {check|subject: {boot: when the fault was last seen in it}}
Faults = Mapping[str, Mapping[str, float]]


def known_faults(findings: Iterable[Finding], before: Faults, reading: Previous) -> dict[str, dict[str, float]]:
    """The faults known before and those of this reading, each with the boots in which it stood."""
    if reading.boot_id is None:
        return merge_faults(before, {}, reading.time)
    now = {_id(finding): {reading.boot_id: reading.time} for finding in findings if _is_curable(finding)}
    return merge_faults(before, now, reading.time)


def merge_faults(first: Faults, second: Faults, now: float) -> dict[str, dict[str, float]]:
    """Both, with the later time of each boot; what was last seen more than 30 days ago is forgotten."""
    oldest = now - _FAULT_DAYS * 86400
    merged: dict[str, dict[str, float]] = {}
    for faults in (first, second):
        for fault, boots in faults.items():
            for boot, seen in boots.items():
                if seen >= oldest:
                    known = merged.setdefault(fault, {})
                    known[boot] = max(seen, known.get(boot, seen))
    return merged


def with_history(findings: Iterable[Finding], faults: Faults, reboots: float) -> list[Finding]:
    """A fault that outlived so many `reboots` is to be replaced, and failed."""
    if not faults:
        return list(findings)
    return [_escalated(finding, len(faults.get(_id(finding), ())), reboots) for finding in findings]


def _escalated(finding: Finding, boots: int, reboots: float) -> Finding:
    if not _is_curable(finding) or boots <= int(reboots):
        return finding
    history = f"seen in {boots} boots: after {boots - 1} reboots it is the hardware's"
    remedy = f"drain the node and have the part replaced; it outlived reboots ({finding.remedy})"
    evidence = "; ".join(filter(None, [finding.evidence, history]))
    return replace(finding, status=Status.FAILED, action="replace", remedy=remedy, evidence=evidence)


def _is_curable(finding: Finding) -> bool:
    return finding.action in _CURABLE and finding.status in (Status.FAILED, Status.WARNING)


def _id(finding: Finding) -> str:
    return f"{finding.check}|{finding.subject}"

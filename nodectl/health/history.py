"""A reboot clears a fault; one that stands again in boot after boot is the hardware's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nodectl.checks.counters import Previous
from nodectl.checks.thresholds import THRESHOLDS
from nodectl.health.policy import Policy
from nodectl.health.state import merge_faults
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_CURABLE = ("reset GPU", "reboot")
_NAME = "reboots_to_hardware"

Faults = Mapping[str, Mapping[str, float]]


def known_faults(findings: Iterable[Finding], before: Faults, reading: Previous) -> dict[str, dict[str, float]]:
    """Those known before and those of this reading, each with the boots in which it stood."""
    if reading.boot_id is None:
        return merge_faults(before, {}, reading.time)
    now = {_id(each): {reading.boot_id: reading.time} for each in findings if _is_curable(each)}
    return merge_faults(before, now, reading.time)


def with_history(findings: Iterable[Finding], faults: Faults, policy: Policy) -> list[Finding]:
    """A fault that outlived as many reboots as it takes is to be replaced, and failed."""
    reboots = int(policy.thresholds.get(_NAME, THRESHOLDS[_NAME].value))
    return [_escalated(each, len(faults.get(_id(each), ())), reboots) for each in findings]


def _escalated(found: Finding, boots: int, reboots: int) -> Finding:
    if not _is_curable(found) or boots <= reboots:
        return found
    said = f"seen in {boots} boots: after {boots - 1} reboots it is the hardware's"
    remedy = f"drain the node and have the part replaced; it outlived reboots ({found.remedy})"
    evidence = "; ".join(filter(None, [found.evidence, said]))
    return replace(found, status=Status.FAILED, action="replace", remedy=remedy, evidence=evidence)


def _is_curable(found: Finding) -> bool:
    return found.action in _CURABLE and found.status in (Status.FAILED, Status.WARNING)


def _id(found: Finding) -> str:
    return f"{found.check}|{found.subject}"

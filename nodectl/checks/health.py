"""All checks of `health`, and what becomes of hosts that did not answer or whose profiles cannot be."""

from __future__ import annotations

from nodectl.checks import node, settings
from nodectl.checks.base import Check, Subject
from nodectl.model.finding import Finding
from nodectl.model.status import Status

CHECKS: tuple[Check, ...] = (
    settings.kernel_settings,
    settings.limits,
    settings.nccl_file,
    settings.mtu,
    settings.access_control,
    node.versions,
    node.gpus,
    node.shared_memory,
    node.disk,
    node.clock,
    node.kernel_log,
)


def judge(host: Subject) -> tuple[Finding, ...]:
    """The findings of all checks on one host."""
    return tuple(found for check in CHECKS for found in check(host))


def unreachable(host: str, reason: str) -> Finding:
    """A host that did not answer is not told, and never passes."""
    remedy = f"run `nodectl exec -l {host} -- true`"
    return Finding(host, "reach", Status.UNKNOWN, expected="an answer", actual=reason, remedy=remedy)


def no_profile(host: str, reason: str, remedy: str, *, impossible: bool) -> Finding:
    """Profiles that cannot work together have failed; without them what should be is not known."""
    status = Status.FAILED if impossible else Status.UNKNOWN
    return Finding(host, "profiles", status, expected="profiles that work together", actual=reason, remedy=remedy)


def warned(host: str, number: int, text: str) -> Finding:
    """What must be told each time the host's profiles are used."""
    return Finding(host, "profiles", Status.WARNING, f"warning {number}", actual=text)

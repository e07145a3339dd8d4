"""Whether the boot before this one ended with a shutdown; if it did not, by what, and what ran there then."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from nodectl.checks.check import Check, Subject, Threshold, judges_fact
from nodectl.common.few import few
from nodectl.facts.last_boot import LastBoot
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 181

_DAY_S = 86400.0
_PERSISTENT = "keep the journal over boots: `Storage=persistent` in journald.conf, then `journalctl --flush`"
_SUPPLY = (
    "a power supply that gave up, its cables or the mains: compare its watts with the GPUs' power limits; "
    "a reset button or a hypervisor leaves no other trace"
)
_REMEDIES = {
    "panic": "read the crash record, and `journalctl -k -b -1`; a part or module that it names comes first",
    "watchdog": "the system hung and was reset: `journalctl -b -1`; look at the last messages of kernel and GPUs",
    "thermal": "cool it: fans, filters, the air in front of it; `ipmitool sdr type Temperature`",
    "hardware": "`ras-mc-ctl --errors` and `ipmitool sel list` name the part; if it comes back, replace it",
    "power": "look at the power supplies, their cables and the mains (`ipmitool sel list`)",
    "stopped": _SUPPLY,
}
_UNTOLD = {
    "denied": ("this login may not read the journal", "see `nodectl sudoers`"),
    "slow": ("the journal does not answer in time", "shrink it: `journalctl --vacuum-size=1G`"),
}
UNCLEAN_BOOT_DAYS_LIMIT = Threshold("unclean_boot_days", 7, "what is older was seen before")
UNCLEAN_BOOT = Check(
    "unclean_boot",
    fires="warning: it ended without a shutdown within the threshold's days",
    expected="a shutdown or reboot in good order",
    thresholds=(UNCLEAN_BOOT_DAYS_LIMIT,),
)


@judges_fact(LastBoot, UNCLEAN_BOOT, reads=("last_boot",), unread="how the last boot ended", borrowed="kernel")
def unclean_boot(host: Subject, boot: LastBoot) -> Iterator[Finding]:
    """Say what ended the last boot, by the strongest evidence; a supply only if nothing else was written."""
    days = host.threshold(UNCLEAN_BOOT_DAYS_LIMIT)
    if boot.way == "unknown":
        why, remedy = _UNTOLD.get(boot.journal, ("the journal is not kept", _PERSISTENT))
        yield host.finding(UNCLEAN_BOOT, Status.UNKNOWN, actual=f"not told: {why}", remedy=remedy)
        return
    way, evidence = boot.way, boot.evidence
    is_recent = host.time - (boot.ended_at or boot.booted_at) <= days * _DAY_S
    status = Status.WARNING if way in _REMEDIES and is_recent else Status.OK
    remedy = "; ".join(filter(None, [_PERSISTENT if boot.journal == "volatile" else "", _REMEDIES.get(way, "")]))
    actual = _words(boot, way, evidence)
    yield host.finding(UNCLEAN_BOOT, status, actual=actual, remedy=remedy, evidence=evidence)


def _words(boot: LastBoot, way: str, evidence: str) -> str:
    if way in ("clean", "first"):
        return {"clean": "ended in good order", "first": "no earlier boot on record"}[way]
    at = f" at {datetime.fromtimestamp(boot.ended_at, UTC):%Y-%m-%d %H:%M:%S} UTC" if boot.ended_at else ""
    ran = f"; then ran: {few(boot.jobs)}" if boot.jobs else ""
    reason = f"; {boot.reason}" if boot.reason and boot.reason != evidence else ""
    what = f"power supply? {evidence}" if way == "stopped" and not boot.reason else f"{way}: {evidence}"
    return f"ended without a shutdown{at}: {what}{reason}{ran}"

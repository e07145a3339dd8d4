"""What the board's management controller has logged of failed parts within the last days."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from nodectl.checks.check import Check, Subject, Threshold, judges_fact
from nodectl.facts.board import BmcEvent, BmcLog
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 168

_DAY_S = 86400
BMC_DAYS_LIMIT = Threshold("bmc_days", 7, "what is older was seen before, or repaired: nobody empties the log")
BMC_LOG = Check(
    "bmc_log",
    looks_at="`ipmitool sel list`",
    fires="a part that failed within the threshold's days; warning: one that is about to, or came near its limit",
    expected="no event of a failed part",
    remedy="`ipmitool sel elist` there names the part; after the repair `ipmitool sel clear`",
    action="drain",
    thresholds=(BMC_DAYS_LIMIT,),
)
# the words of ipmitool for IPMI's sensor events (IPMI 2.0, tables 42-2 and 42-3)
_FAILED = re.compile(
    r"Uncorrectable ECC|Uncorrectable error|Uncorrectable machine check|Bus Fatal|PCI [PS]ERR|IERR|CATERR"
    r"|Thermal Trip|Failure detected|Non-recoverable|Drive Fault|Memory Device Disabled|Critical Interrupt"
    r"|Power Supply AC lost|Bus Uncorrectable|FRB[123]|Redundancy Lost|Config(?:uration)? Error|Upper Critical"
    r"|Lower Critical|Processor disabled|In Failed Array",
    re.IGNORECASE,
)
_NEAR = re.compile(
    r"Predictive Failure|Correctable ECC logging limit|logging limit reached|Non-critical|Degraded|Throttled"
    r"|Bus Correctable|Redundancy Degraded",
    re.IGNORECASE,
)


@judges_fact(BmcLog, BMC_LOG, reads=("bmc_log",), unread="the BMC's event log", borrowed="sys")
def bmc_log(host: Subject, log: BmcLog) -> Iterator[Finding]:
    """The newest event of each sensor, where it says that a part failed and nothing took it back since."""
    days = host.threshold(BMC_DAYS_LIMIT)
    newest = {(event.sensor, event.event): event for event in log.events}
    standing = [event for event in newest.values() if event.asserted and _recent(event, host.time, days)]
    actual = f"none in {days:g} days, {len(log.events)} events in all"
    yield from host.all_of(BMC_LOG, _findings(host, standing), actual=actual)


def _findings(host: Subject, events: list[BmcEvent]) -> Iterator[Finding]:
    for event in events:
        text = f"{event.sensor}: {event.event}"
        failed = _FAILED.search(text) and not _NEAR.search(text)
        if failed or _NEAR.search(text):
            status, action = (Status.FAILED, "drain") if failed else (Status.WARNING, "none")
            when = f" on {event.date} at {event.time}" if event.date else ""
            yield host.finding(BMC_LOG, status, event.sensor, actual=f"{event.event}{when}", action=action)


def _recent(event: BmcEvent, now: float, days: float) -> bool:
    """What came before the controller had a clock is taken for recent: it may be of this start."""
    if not event.date:
        return True
    form = "%m/%d/%Y" if len(event.date) == 10 else "%m/%d/%y"
    try:
        at = datetime.strptime(event.date, form).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return True
    return now - at <= (days + 1) * _DAY_S

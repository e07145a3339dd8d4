"""Whether a cordoned host has shown since that what failed before passes again: a pure function of the journal."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.ledger.events import Event, minute
from nodectl.model.acceptance import NodeVerdict
from nodectl.model.status import Status

_PASSED = (Status.OK, Status.WARNING)


def lacking(cordon: Event, before: Sequence[Event], host: Sequence[Event]) -> str:
    """Return what is missing for a return; empty where it is proven.

    `before` are the acceptances of the cordoned host: the last one before the cordon says which steps failed. `host`
    are those of the host that is to return, where a part may sit now. Only one that began after the cordon counts.
    """
    since = minute(cordon.time)
    after = [event for event in host if event.id > cordon.id and (event.began or 0.0) >= cordon.time]
    if not after:
        return f"no acceptance of it since it was cordoned on {since}"
    former = next((event for event in reversed(before) if event.id < cordon.id), None)
    failed = former.failed if former is not None else ()
    unproven = [step for step in failed if _last(after, step) not in _PASSED]
    if unproven:
        return f"{', '.join(unproven)} failed before and has not passed since it was cordoned on {since}"
    last = after[-1].verdict
    if last is NodeVerdict.REJECTED:
        return f"its last acceptance rejected it: {', '.join(after[-1].failed) or 'see nodectl ledger show'}"
    if not failed and not (last is not None and last.accepts):
        return f"its last acceptance says: {last}"
    return ""


def _last(events: Sequence[Event], step: str) -> Status | None:
    """The step's status in the last acceptance that had it for this host."""
    return next((event.steps[step] for event in reversed(events) if step in event.steps), None)

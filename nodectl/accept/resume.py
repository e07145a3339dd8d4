"""Refusals to continue an acceptance: by another nodectl, on another fleet, on other machines."""

from __future__ import annotations

from collections.abc import Mapping

from nodectl import __version__
from nodectl.accept.means import Means
from nodectl.accept.steps import STEPS, Level
from nodectl.common.few import few
from nodectl.errors import UsageError
from nodectl.model.acceptance import LATEST_S, Acceptance, Part

_ANOTHER = "begin another: nodectl accept"


def refuse_strange(begun: Acceptance, fleet: str) -> None:
    """UsageError where it is of another fleet, or not as this version begins one: older, newer, or edited."""
    if begun.fleet != fleet:
        first, this = (" -i ".join(one.splitlines()) for one in (begun.fleet, fleet))
        message = f"acceptance {begun.id} was begun with -i {first}, and this is -i {this}"
        raise UsageError(message, f"nodectl -i {first} accept --resume {begun.id}")
    names = [step.name for step in begun.steps]
    order = [kind.name for kind in STEPS if kind.name in names]
    wrong = {
        f"its level {begun.level!r}": begun.level not in list(Level),
        "the list of its steps": names != order or not names,
        "a time in it": not all(0 <= step.planned_s < LATEST_S for step in begun.steps),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise UsageError(f"acceptance {begun.id}: {what} was not written by nodectl {__version__}", _ANOTHER)


def refuse_untried(begun: Acceptance, means: Mapping[str, Means]) -> None:
    """UsageError where a host has a part that the steps which are done have not tried."""
    for host in begun.hosts:
        now = means.get(host.host)
        if now is None or host.left_after or not host.parts:
            continue
        tried = {(part.kind, part.id) for part in host.parts}
        if new := [part for part in now.parts if (part.kind, part.id) not in tried]:
            message = (
                f"acceptance {begun.id}: {host.host} has {few([_named(part) for part in new])} now, which was not tried"
            )
            raise UsageError(message, _ANOTHER)


def _named(part: Part) -> str:
    return f"the {part.kind} {part.id}"

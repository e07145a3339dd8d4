"""Whether a job could be launched by hand: the deployed launcher runs, and torchrun is there."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges
from nodectl.common import node_paths
from nodectl.facts.launcher import Launcher
from nodectl.model.finding import Finding

ORDER = 32

LAUNCHER = Check(
    "launcher",
    looks_at=f"{node_paths.LAUNCHER} on hosts with {node_paths.ROOT}, live",
    fires="it does not run, or torchrun is not there",
    roles=("launcher",),
)


@judges(LAUNCHER, reads=("launcher",))
def launcher(host: Subject) -> Iterator[Finding]:
    """Only where nodectl has provisioned something, and a stack is named."""
    found = host.facts.get("launcher")
    if host.wanted is None or "stack" not in host.wanted.names:
        return
    yield from host.unknown(found, "runs", LAUNCHER)
    if not isinstance(found, Launcher):
        return
    rows = (
        ("", "runs", found.error, "run `nodectl provision --tags launcher`"),
        ("torchrun", "executable", found.torchrun_error, "run `nodectl provision --tags pytorch`"),
    )
    for subject, expected, error, remedy in rows:
        yield host.finding(
            LAUNCHER, failed_unless(not error), subject, expected=expected, actual=error or expected, remedy=remedy
        )

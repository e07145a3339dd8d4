"""Suggested cordons after an acceptance: the hosts, why, and the command that does it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from nodectl.common.few import clipped
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Part
from nodectl.model.status import Status

_LONGEST_REASON = 160


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rejected host, its parts, and the first finding that rejected it."""

    host: str
    parts: tuple[Part, ...]
    reason: str

    @property
    def command(self) -> str:
        """Return what an operator would type."""
        return f"nodectl ledger cordon {shlex.quote(self.host)} --reason {shlex.quote(self.reason)}"


def suggested(acceptance: Acceptance) -> tuple[Suggestion, ...]:
    """Return a suggestion for each rejected host."""
    rejected = [row for row in acceptance.hosts if row.verdict is NodeVerdict.REJECTED]
    return tuple(Suggestion(row.host, row.parts, _reason(row)) for row in rejected)


def _reason(row: HostAcceptance) -> str:
    failed = [seen for seen in row.reasons if seen.finding.status is Status.FAILED]
    if not failed:
        return f"failed: {', '.join(name for name, status in row.steps.items() if status is Status.FAILED)}"
    finding, more = failed[0].finding, len(failed) - 1
    name = f"{finding.check} {finding.subject}".strip()
    words = " ".join(f"{name}: {finding.actual}".split())
    return clipped(words, _LONGEST_REASON) + (f" (and {more} more)" if more else "")

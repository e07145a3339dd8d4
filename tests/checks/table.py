"""One row for each thing that a check may say, and the runner that all tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from nodectl.checks.base import Subject
from nodectl.checks.counters import Previous
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.profiles.resolve import Resolved, resolve

UNREAD = Unread("unknown", "the output was cut")
ABSENT = Unread("absent", "no such tool")
BOOT = "6d1f6bb4-1a5c-4c58-9d0c-5d1d4f6f0a11"
NOW = 1_000_000.0


@dataclass(frozen=True)
class Case:
    """`facts` lead to findings of `check` with just these statuses (of `subject`, where one is given)."""

    check: str
    status: str
    facts: Mapping[str, object] = field(default_factory=dict)
    wanted: Resolved | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, int] | None = None
    subject: str | None = None
    action: str | None = None

    def __str__(self) -> str:
        return f"{self.check}-{self.status}"


def found(module: ModuleType, case: Case) -> list[Finding]:
    """What the module's checks say of the case."""
    previous = None if case.before is None else Previous(NOW - 3600, BOOT, case.before)
    host = Subject("n1", case.facts, case.wanted, case.variables, previous, BOOT, NOW)
    return [each for check in module.CHECKS for each in check(host)]


def verify(module: ModuleType, case: Case) -> None:
    """The case's check says what it should, in full; no check says what no catalogue has."""
    everything = found(module, case)
    known = {each.check for each in module.ABOUT}
    assert {each.check for each in everything} <= known
    ours = [each for each in everything if each.check == case.check and case.subject in (None, each.subject)]
    assert {each.status.value for each in ours} == ({case.status} if case.status != "nothing" else set()), everything
    for each in ours:
        assert each.host == "n1" and each.actual
        assert bool(each.remedy) == (case.status not in ("ok", "skipped")), each
        assert case.action in (None, each.action)
        assert each.action == "none" or case.status not in ("ok", "skipped")


def missing(module: ModuleType, cases: Iterable[Case]) -> set[str]:
    """Checks of the module without a case that fires, one that is quiet, or one that could not tell."""
    kinds: dict[str, set[str]] = {each.check: set() for each in module.ABOUT}
    for case in cases:
        word = {"failed": "fires", "warning": "fires", "ok": "quiet", "unknown": "could not tell"}.get(case.status)
        kinds[case.check].add(word or case.status)
    wanted = {"fires", "quiet", "could not tell"}
    return {f"{check}: {', '.join(sorted(wanted - have))}" for check, have in kinds.items() if wanted - have}


def dgx(**hardware: object) -> Resolved:
    """A node with eight GPUs and eight InfiniBand ports of 200 Gbit/s."""
    return resolve("dgx-a100", "cu128", "stock", overrides={"hardware": hardware} if hardware else None)


def plain(**hardware: object) -> Resolved:
    """A node that nothing is known of but these."""
    return resolve("unknown", "cpu", "stock", overrides={"hardware": hardware} if hardware else None)

"""One row for each thing that a check may say, and the runner that all tables share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from nodectl.checks.catalogue import checks, declared, launch_checks, values
from nodectl.checks.check import Judgement, Subject, Threshold
from nodectl.checks.counters import Previous
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.resolve import Resolved, resolve

UNREAD = Unread("unknown", "the output was cut")
ABSENT = Unread("absent", "no such tool")
DENIED = Unread("unknown", "`dmesg -r` needs root, and sudo wants a password: see `nodectl sudoers`")
BOOT = "6d1f6bb4-1a5c-4c58-9d0c-5d1d4f6f0a11"
NOW = 1_000_000.0
# what every host has, read from its variables with care
GIVEN = ("nodectl_nics", "mounts", "nodectl_health", "site_checks")


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


def quiet(facts: Mapping[str, object], wanted: Resolved | None = None, *, checks: str) -> list[Case]:
    """Rows of a host with which each of these checks is content."""
    return [Case(check, "ok", facts, wanted) for check in checks.split()]


class Facts(dict[str, Any]):
    """A host's facts or variables, and the names of those that somebody looked at."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(facts)
        self.read: set[str] = set()

    def get(self, name: str, default: object = None) -> Any:
        """As a dictionary, noting the name."""
        self.read.add(name)
        return super().get(name, default)


@dataclass(frozen=True)
class Watched(Subject):
    """A host that notes which thresholds it was asked for."""

    asked: set[Threshold] = field(default_factory=set)

    def threshold(self, threshold: Threshold) -> float:
        """As every host, noting the threshold."""
        self.asked.add(threshold)
        return super().threshold(threshold)


def found(module: ModuleType, case: Case) -> list[Finding]:
    """What the module's checks say of the case, or the judges of its own check, where it names one.

    Each says only what it declares, and reads only what it says that it reads.
    """
    previous = None if case.before is None else Previous(NOW - 3600, BOOT, case.before)
    findings: list[Finding] = []
    judges = [value for value in values(module) if isinstance(value, Judgement)]
    if case.check:
        judges = [judge for judge in judges if case.check in {check.id for check in judge.checks}]
    for judgement in judges:
        facts, variables = Facts(case.facts), Facts(case.variables)
        host = Watched("n1", facts, case.wanted, variables, previous, BOOT, NOW)
        ours = list(judgement(host))
        assert {each.check for each in ours} <= {check.id for check in judgement.checks}
        assert facts.read <= set(judgement.reads)
        assert variables.read <= {*judgement.variables, *GIVEN}
        assert host.asked <= {limit for check in judgement.checks for limit in check.thresholds}
        findings += ours
    return findings


def verify(module: ModuleType, case: Case) -> None:
    """The case's check says what it should, in full."""
    everything = found(module, case)
    ours = [each for each in everything if each.check == case.check and case.subject in (None, each.subject)]
    assert {each.status.value for each in ours} == ({case.status} if case.status != "nothing" else set()), everything
    for each in ours:
        assert each.host == "n1" and each.actual
        assert bool(each.remedy) == (case.status not in ("ok", "skipped")), each
        assert case.action in (None, each.action)
        # the remedy for damage never goes with what is not known
        check = {**checks(), **launch_checks()}[each.check]
        assert each.status is not Status.UNKNOWN or each.remedy != check.remedy or check.action == "none"
        assert each.action == "none" or case.status not in ("ok", "skipped")


def missing(module: ModuleType, cases: Iterable[Case]) -> set[str]:
    """Checks of the module without a case that fires, one that is quiet, or one that could not tell."""
    kinds: dict[str, set[str]] = {check.id: set() for check in declared(module)}
    for case in (case for case in cases if case.check in kinds):
        word = {"failed": "fires", "warning": "fires", "ok": "quiet", "unknown": "could not tell"}.get(case.status)
        kinds[case.check].add(word or case.status)
    wanted = {"fires", "quiet", "could not tell"}
    return {f"{check}: {', '.join(sorted(wanted - have))}" for check, have in kinds.items() if wanted - have}


def dgx(**hardware: object) -> Resolved:
    """A node with eight GPUs and eight InfiniBand ports of 200 Gbit/s."""
    return _resolved("dgx-a100", "cu128", json.dumps(hardware))


def plain(**hardware: object) -> Resolved:
    """A node that nothing is known of but these."""
    return _resolved("unknown", "cpu", json.dumps(hardware))


@cache
def _resolved(hardware: str, stack: str, overrides: str) -> Resolved:
    """It is frozen, and hundreds of cases want the same."""
    return resolve(
        hardware, stack, "stock", overrides={"hardware": json.loads(overrides)} if overrides != "{}" else None
    )

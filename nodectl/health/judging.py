"""One host: what is to be asked of it, and what its answer comes to."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nodectl.checks.check import Subject
from nodectl.checks.counters import Previous
from nodectl.checks.fleet.compare import Member, claims_of, values_of
from nodectl.checks.judge import clipped, judge, unreachable
from nodectl.facts.base import Fact, Occasion
from nodectl.facts.boot import Boot
from nodectl.facts.catalogue import commands_for, facts_for, read_facts
from nodectl.facts.lab import Lab
from nodectl.health.policy import VARIABLE, Policy, policy_of
from nodectl.health.wanted import Wanted, wanted_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.model.result import CommandResult

# what a recording holds; it may have what only root sees, also where no profile says so
REPLAYED: tuple[Occasion, ...] = ("always",)
LIVE: tuple[Occasion, ...] = (*REPLAYED, "live")
VERIFY: tuple[Occasion, ...] = (*LIVE, "verify")
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Order:
    """A host, what it should be, and the commands that tell what it is."""

    host: Host
    wanted: Wanted
    policy: Policy
    variables: Mapping[str, Any]
    facts: tuple[Fact[Any], ...]
    commands: tuple[Command, ...]
    previous: Previous | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of one host: findings, what it brings to the comparison, and the reading to keep."""

    host: str
    findings: tuple[Finding, ...]
    member: Member | None = None
    reading: Previous | None = None
    recorded: str | None = None


def order_of(
    host: Host,
    names: Mapping[str, str],
    extra_dirs: Sequence[Path],
    previous: Previous | None = None,
    *,
    occasions: tuple[Occasion, ...] = LIVE,
) -> Order:
    """What to ask of the host on these occasions; UsageError where its `nodectl_health` is not one."""
    wanted, policy = wanted_of(host, names, extra_dirs), policy_of(host.name, host.variables)
    facts = _facts(*_needs(wanted, replayed=occasions == REPLAYED), occasions)
    variables = {"nodectl_nics": _nics(host), "mounts": policy.mounts, VARIABLE: {"xid": dict(policy.xid)}}
    return Order(host, wanted, policy, variables, facts, commands_for(host, facts), previous)


def _needs(wanted: Wanted, *, replayed: bool) -> tuple[tuple[str, ...], bool]:
    """The kernel settings to read, and whether there are GPUs; a recording is read as if, where no profile says so."""
    resolved = wanted.resolved
    if resolved is None:
        return (), replayed
    gpus = resolved.hardware.gpus
    return tuple(sorted(resolved.tuning.sysctl)), replayed if gpus is None else gpus > 0


@lru_cache(maxsize=64)
def _facts(keys: tuple[str, ...], has_gpus: bool, occasions: tuple[Occasion, ...]) -> tuple[Fact[Any], ...]:
    return facts_for(keys, root=has_gpus, occasions=occasions)


def _nics(host: Host) -> list[str] | None:
    named = host.variables.get("nodectl_nics")
    return [str(name) for name in named] if isinstance(named, list) and named else None


def seen(order: Order, answer: Recording | CommandResult) -> Seen:
    """The host's findings; one that did not answer is not told."""
    host, wanted = order.host.name, order.wanted
    if not isinstance(answer, Recording):
        reason = answer.error or str(answer.outcome)
        return Seen(host, (*wanted.findings, unreachable(host, clipped(reason), answer.remedy)))
    facts = read_facts(answer, order.facts)
    boot = facts.get("boot")
    boot_id = boot.boot_id if isinstance(boot, Boot) else None
    subject = Subject(
        host,
        facts,
        wanted.resolved,
        order.variables,
        previous=order.previous,
        boot_id=boot_id,
        time=answer.time or time.time(),
        thresholds=order.policy.thresholds,
    )
    findings = (*wanted.findings, *judge(subject))
    group = wanted.resolved.names["hardware"] if wanted.resolved else ""
    values = {key: text and clipped(text, _LONGEST) for key, text in values_of(subject).items()}
    member = Member(host, group, values, claims_of(subject), boot_id, bool(answer.recorded))
    lab = facts.get("lab")
    recorded = answer.recorded or (lab.recorded if isinstance(lab, Lab) else "") or None
    return Seen(host, findings, member, Previous(subject.time, boot_id, subject.counters), recorded)

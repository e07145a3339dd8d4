"""One host: what it should be, what is to be asked of it, and the findings of its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nodectl.checks.catalogue import judgements
from nodectl.checks.catalogue import variables as asked_variables
from nodectl.checks.check import Judgement, Subject
from nodectl.checks.counters import Previous
from nodectl.checks.fleet.compare import Member, claims_of, values_of
from nodectl.checks.fleet.names import named_by
from nodectl.checks.judge import LONGEST, judge, no_profile, profile_warning, unreachable
from nodectl.checks.site import ASKED
from nodectl.common.few import clipped
from nodectl.errors import ProfileError
from nodectl.facts.base import Fact, Occasion
from nodectl.facts.catalogue import commands_for, facts_for, read_facts
from nodectl.facts.kernel import Boot
from nodectl.facts.look import Lab
from nodectl.facts.settings import SessionLimits
from nodectl.health.policy import VARIABLE, Policy, policy_of, refuse_unknown
from nodectl.health.site import SiteCheck, commands_on
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.model.result import CommandResult
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.host import of_host
from nodectl.profiles.resolve import Resolved

# what a recording holds; it may have what only root sees, also if no profile says so
REPLAYED: tuple[Occasion, ...] = ("always",)
LIVE: tuple[Occasion, ...] = (*REPLAYED, "live")
VERIFY: tuple[Occasion, ...] = (*LIVE, "verify")
# by these a host's reading is placed: its boot, and whether a recording answers
_ALWAYS_READ = frozenset({"boot", "lab"})
_LONGEST = 200
_facts = lru_cache(maxsize=64)(facts_for)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The profiles of a host, None if they are not known; and the findings about them.

    `refused`: the inventory names profiles or values that cannot be used.
    """

    resolved: Resolved | None
    findings: tuple[Finding, ...] = ()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A host, what it should be, who judges it, and the commands that tell what it is."""

    host: Host
    wanted: Wanted
    policy: Policy
    variables: Mapping[str, Any]
    facts: tuple[Fact[Any], ...]
    commands: tuple[Command, ...]
    judgements: tuple[Judgement[Subject], ...]
    previous: Previous | None = None


@dataclass(frozen=True, slots=True)
class HostHealth:
    """One host's findings, what it brings to the comparison of the fleet, and the reading to keep.

    `recorded` names the recording that answered for it.
    """

    host: str
    findings: tuple[Finding, ...]
    member: Member | None = None
    reading: Previous | None = None
    recorded: str | None = None


def wanted_of(host: Host, names: Mapping[str, str], extra_dirs: Sequence[Path]) -> Wanted:
    """Return the host's profiles, merged and validated as for Ansible; `names` go before the host's own variables."""
    try:
        resolved = of_host(host, names=names, extra_dirs=extra_dirs)
    except ProfileError as error:
        impossible = isinstance(error, IncompatibleError)
        return Wanted(None, (no_profile(host.name, error.message, error.remedy, impossible=impossible),), refused=True)
    if resolved is None or "stack" not in resolved.names:
        remedy = "set nodectl_stack in the inventory, or give --stack"
        return Wanted(resolved, (no_profile(host.name, "nodectl_stack is not set", remedy, impossible=False),))
    return Wanted(resolved, tuple(profile_warning(host.name, n, text) for n, text in enumerate(resolved.warnings, 1)))


def order_of(
    host: Host,
    names: Mapping[str, str],
    extra_dirs: Sequence[Path],
    previous: Previous | None = None,
    *,
    occasions: tuple[Occasion, ...] = LIVE,
    judged_by: Sequence[Judgement[Subject]] | None = None,
    site: Sequence[SiteCheck] | None = None,
) -> Order:
    """Return what to ask of the host on these occasions: what the judgements read, all of them where None.

    `site` are the site's own checks, None if they are not looked for. UsageError if the host's `nodectl_health`
    is not one.
    """
    wanted, policy = wanted_of(host, names, extra_dirs), policy_of(host.name, host.variables)
    if site is not None:
        refuse_unknown(host.name, policy, [check.id for check in site])
    own_commands = commands_on(host, site or ())
    keys, has_gpus = _needs(wanted, replayed=occasions == REPLAYED)
    facts = _facts(keys, root=has_gpus, occasions=occasions)
    nics = host.variables.get("nodectl_nics")
    if judged_by is not None:
        read = {name for judgement in judged_by for name in judgement.reads} | _ALWAYS_READ
        facts = tuple(fact for fact in facts if fact.subject in read)
    asked = {name: host.variables.get(name) for name in asked_variables()}
    # a check's own default stands where the inventory says nothing
    set_variables = {name: value for name, value in asked.items() if value is not None}
    variables = {
        **set_variables,
        "nodectl_nics": [str(name) for name in nics] if isinstance(nics, list) and nics else None,
        "mounts": policy.mounts,
        VARIABLE: policy.model_dump(include={"xid"}, exclude_unset=True),
        ASKED: [command.key for command in own_commands],
    }
    judges = judgements() if judged_by is None else tuple(judged_by)
    commands = (*commands_for(host, facts), *own_commands)
    return Order(host, wanted, policy, variables, facts, commands, judges, previous)


def _needs(wanted: Wanted, *, replayed: bool) -> tuple[tuple[str, ...], bool]:
    """Return the kernel settings to read, and whether there are GPUs (in a recording, unless a profile says none)."""
    resolved = wanted.resolved
    if resolved is None:
        return (), replayed
    gpus = resolved.hardware.gpus
    return tuple(sorted(resolved.tuning.sysctl)), replayed if gpus is None else gpus > 0


def judge_answer(order: Order, answer: Recording | CommandResult) -> HostHealth:
    """Return the host's findings; one that did not answer is unknown."""
    host, wanted = order.host.name, order.wanted
    if not isinstance(answer, Recording):
        reason = answer.error or str(answer.outcome)
        return HostHealth(host, (*wanted.findings, unreachable(host, clipped(reason, LONGEST), answer.remedy)))
    facts = read_facts(answer, order.facts)
    boot, lab = facts.get("boot"), facts.get("lab")
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
        session=session if isinstance(session := facts.get("limits"), SessionLimits) else None,
    )
    findings = (*wanted.findings, *judge(subject, order.judgements))
    group = wanted.resolved.names["hardware"] if wanted.resolved else ""
    values, looked = values_of(subject)
    member = Member(
        host,
        group,
        {
            key: {part: text and clipped(text, _LONGEST) for part, text in texts.items()}
            for key, texts in values.items()
        },
        looked,
        claims_of(subject),
        boot_id,
        copied=bool(answer.recorded),
        names=named_by(subject, order.host.address),
    )
    recorded = answer.recorded or (lab.recorded if isinstance(lab, Lab) else "") or None
    return HostHealth(host, findings, member, Previous(subject.time, boot_id, subject.counters), recorded)

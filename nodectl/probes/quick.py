"""The probes that run if none is named: those for which the hosts have the means, while time lasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from nodectl.common.units import time_text
from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.gpus import Gpus
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.probes.base import Need
from nodectl.probes.registry import AnyProbe, group, listed
from nodectl.recordings.source import LiveSource
from nodectl.transport.base import Transport

BUDGET_S = 120.0
_SUBJECTS = ("gpus", "ib_ports", "versions")

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Probes in the order in which they run, and a line for each reason why others do not."""

    probes: tuple[AnyProbe, ...]
    left_out: tuple[str, ...]


def choose(transport: Transport, hosts: Sequence[Host], ends_at: float, forks: int) -> Choice:
    """Ask the hosts what they have, and choose what fits until that moment of the monotonic clock."""
    needed = facts_named(*_SUBJECTS)
    facts: dict[str, Facts] = {}
    for host, answer in LiveSource(tuple(hosts), transport, forks).recordings(lambda host: commands_for(host, needed)):
        # a host that does not answer may have everything: the probes will say that it does not answer
        facts[host.name] = read_facts(answer, needed) if isinstance(answer, Recording) else {}
    return choice(list(facts.values()), max(0.0, ends_at - monotonic()))


def choice(facts: Sequence[Facts], time_s: float) -> Choice:
    """Choose of the group quick what the hosts have the means for, the cheapest first while time lasts."""
    reasons: dict[str, list[str]] = {}
    able = []
    for probe in group("quick"):
        if reason := _lacking(probe, facts):
            reasons.setdefault(reason, []).append(probe.name)
        else:
            able.append(probe)
    kept: list[AnyProbe] = []
    left_s = time_s
    for probe in sorted(able, key=_least_s):
        if _least_s(probe) <= left_s:
            kept.append(probe)
            left_s -= _least_s(probe)
        else:
            reasons.setdefault(f"no room in {time_text(time_s)}: more with --budget", []).append(probe.name)
    others = [probe.name for probe in listed() if "quick" not in probe.groups]
    if others:
        reasons.setdefault("they take longer, or are asked for by name", []).extend(others)
    left_out = tuple(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return Choice(tuple(kept), left_out)


def _least_s(probe: AnyProbe) -> float:
    return probe.cost_s(probe.least)


def _lacking(probe: AnyProbe, facts: Sequence[Facts]) -> str:
    """Return why it cannot be measured here; "" if it can, or if the hosts cannot tell."""
    # two GPUs are two ranks on one host
    gpus = [host.get("gpus") for host in facts]
    alone = probe.has_ranks and any(isinstance(of_host, Gpus) and of_host.count > 1 for of_host in gpus)
    needed = 2 if probe.between_hosts and not alone else 1
    if len(facts) < needed:
        return "only one host is selected"
    for need in probe.needs:
        having = sum(_has(need, host) for host in facts)
        if having < needed:
            return f"no host has {need}" if not having else f"only one host has {need}"
    return ""


def _has(need: Need, facts: Facts) -> bool:
    """Return whether the host has it, True also if it cannot tell: the probe will say why."""
    subject, is_there = _MEANS[need]
    fact = facts.get(subject)
    if fact is None or (isinstance(fact, Unread) and fact.kind == "unknown"):
        return True
    return not isinstance(fact, Unread) and is_there(fact)


_MEANS: Mapping[Need, tuple[str, Callable[[Any], bool]]] = {
    Need.GPU: ("gpus", lambda gpus: gpus.count > 0),
    Need.RDMA: ("ib_ports", bool),
    Need.IPERF3: ("versions", lambda versions: versions.iperf3 is not None),
    Need.TORCH: ("versions", lambda versions: versions.torch is not None),
}

"""A fleet's health: each host's profiles resolved, its facts collected in one round trip, and judged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.checks.base import Subject
from nodectl.checks.health import judge, no_profile, unreachable, warned
from nodectl.errors import ProfileError
from nodectl.facts.health import commands_of, health_facts, read_all
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.status import Status, worst
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.resolve import Resolved, resolve
from nodectl.recording import collect
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

KINDS = ("hardware", "stack", "tuning")
# what a host's variables may leave out, as in playbooks/tasks/fleet.yml
_DEFAULTS = {"hardware": "unknown", "tuning": "stock"}


@dataclass(frozen=True, slots=True)
class Health:
    """What was found, and the profiles that each host was held against."""

    findings: tuple[Finding, ...]
    profiles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def hosts(self) -> dict[str, Status]:
        """Each host's worst status."""
        names = dict.fromkeys(found.host for found in self.findings)
        return {name: worst(found.status for found in self.findings if found.host == name) for name in names}


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a host should be, or why that is not known; and what must be told about it."""

    resolved: Resolved | None
    findings: tuple[Finding, ...] = ()


def look(
    hosts: Sequence[Host], transport: Transport, *, names: Mapping[str, str], extra_dirs: Sequence[Path], forks: int
) -> Health:
    """facts against profiles, for all hosts at once; `names` go before the hosts' own profile variables."""
    wanted = {host.name: wanted_of(host, names, extra_dirs) for host in hosts}

    def one(host: Host) -> tuple[Finding, ...]:
        return _judged(transport, host, wanted[host.name])

    found = dict(fan_out(hosts, one, forks))
    profiles = {name: dict(each.resolved.names) for name, each in wanted.items() if each.resolved}
    return Health(tuple(each for host in hosts for each in found[host]), profiles)


def wanted_of(host: Host, names: Mapping[str, str], extra_dirs: Sequence[Path]) -> _Wanted:
    """The host's profiles, merged and validated as for Ansible."""
    chosen = {kind: names.get(kind) or host.variables.get(f"nodectl_{kind}") for kind in KINDS}
    if not chosen["stack"]:
        remedy = "set nodectl_stack in the inventory, or give --stack"
        return _Wanted(None, (no_profile(host.name, "nodectl_stack is not set", remedy, impossible=False),))
    try:
        resolved = resolve(
            *(str(chosen[kind] or _DEFAULTS[kind]) for kind in KINDS),
            overrides=_overrides(host.variables),
            extra_dirs=extra_dirs,
            allow_unsupported=_plain(host.variables.get("nodectl_allow_unsupported") or []),
        )
    except ProfileError as error:
        impossible = isinstance(error, IncompatibleError)
        return _Wanted(None, (no_profile(host.name, error.message, error.remedy, impossible=impossible),))
    return _Wanted(resolved, tuple(warned(host.name, n, text) for n, text in enumerate(resolved.warnings, 1)))


def _overrides(variables: Mapping[str, Any]) -> dict[str, Any]:
    overrides = dict(_plain(variables.get("nodectl_overrides") or {}))
    nccl = _plain(variables.get("nodectl_nccl_env") or {})
    return {**overrides, "nccl": {**overrides.get("nccl", {}), **nccl}} if nccl else overrides


def _plain(value: object) -> Any:
    """Through JSON: plain text and numbers, without Ansible's tags."""
    return json.loads(json.dumps(value))


def _judged(transport: Transport, host: Host, wanted: _Wanted) -> tuple[Finding, ...]:
    resolved = wanted.resolved
    keys = sorted(resolved.tuning.sysctl) if resolved else []
    facts = health_facts(keys, has_gpus=bool(resolved and resolved.hardware.gpus))
    recording = collect(transport, host, commands_of(facts, host))
    if not isinstance(recording, Recording):
        return (*wanted.findings, unreachable(host.name, recording.error or str(recording.outcome)))
    subject = Subject(host.name, read_all(facts, recording), resolved, {"nodectl_nics": _nics(host)})
    return (*wanted.findings, *judge(subject))


def _nics(host: Host) -> list[str] | None:
    named = host.variables.get("nodectl_nics")
    return [str(name) for name in named] if isinstance(named, list) and named else None

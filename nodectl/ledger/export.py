"""The cordoned hosts as other tools take them, and the cordons that an acceptance suggests; texts only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from nodectl.common.few import clipped
from nodectl.errors import UsageError
from nodectl.ledger.events import Hold, minute
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Part
from nodectl.model.status import Status

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST_REASON = 200
# `nodectl health --drain --resume` gives back what begins with its own mark: this must not
_MARK = "cordoned (nodectl ledger): "


def slurm_lines(holds: Mapping[str, Sequence[Hold]], returned: Sequence[str]) -> str:
    """`scontrol update NodeName=… State=DRAIN Reason=…` for each cordoned host, RESUME for what has returned."""
    drains = [
        shlex.join(["scontrol", "update", f"NodeName={_node(host)}", "State=DRAIN", f"Reason={_reason(host_holds)}"])
        for host, host_holds in holds.items()
    ]
    resumes = [shlex.join(["scontrol", "update", f"NodeName={_node(host)}", "State=RESUME"]) for host in returned]
    return "\n".join([*drains, *resumes])


def ansible_group(holds: Mapping[str, Sequence[Hold]]) -> str:
    """Return an inventory with the group `cordoned`, to be given beside the fleet's own."""
    hosts = {host: {"nodectl_cordoned": _Words(_words(host_holds))} for host, host_holds in holds.items()}
    text = yaml.dump({"cordoned": {"hosts": hosts}}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
    return str(text).rstrip("\n")


class _Words(str):
    """A variable's value that is no template, whatever stands in it."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """YAML as Ansible reads it."""


def _words_node(dumper: _Dumper, text: _Words) -> yaml.Node:
    # a reason may be what a host said, and a template is a program that Ansible runs on the operator's machine
    marked = any(mark in text for mark in ("{{", "{%", "{#"))
    return dumper.represent_scalar("!unsafe" if marked else "tag:yaml.org,2002:str", str(text))


_Dumper.add_representer(_Words, _words_node)


def _node(host: str) -> str:
    """Return the name that Slurm has by default: the host's without its domain; an address stays whole."""
    short = host.partition(".")[0]
    name = host if short.isdigit() else short
    if not _NAME.fullmatch(name):  # scontrol would take a list or ALL
        raise UsageError(f"{host!r} is no name of a node of Slurm", "name it in the inventory as Slurm does")
    return name


def _words(holds: Sequence[Hold]) -> str:
    return " ".join("; ".join(f"since {minute(hold.cordon.time)}: {hold.cordon.reason}" for hold in holds).split())


def _reason(holds: Sequence[Hold]) -> str:
    reason = _MARK + " ".join("; ".join(dict.fromkeys(hold.cordon.reason for hold in holds)).split())
    plain = re.sub(r"[^ -~]", "?", reason).replace('"', "'")
    return plain if len(plain) <= _LONGEST_REASON else plain[: _LONGEST_REASON - 3] + "..."


_SUGGEST_LONGEST_REASON = 160


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
    return tuple(Suggestion(row.host, row.parts, _suggest_reason(row)) for row in rejected)


def _suggest_reason(row: HostAcceptance) -> str:
    failed = [seen for seen in row.reasons if seen.finding.status is Status.FAILED]
    if not failed:
        return f"failed: {', '.join(name for name, status in row.steps.items() if status is Status.FAILED)}"
    finding, more = failed[0].finding, len(failed) - 1
    name = f"{finding.check} {finding.subject}".strip()
    reason = " ".join(f"{name}: {finding.actual}".split())
    return clipped(reason, _SUGGEST_LONGEST_REASON) + (f" (and {more} more)" if more else "")

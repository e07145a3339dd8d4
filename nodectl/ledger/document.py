"""The ledger as rows, lines and documents, as scontrol and Ansible take it, and the cordons that a verdict suggests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from nodectl.common.few import clipped, few
from nodectl.errors import UsageError
from nodectl.ledger.events import Event, EventKind, Hold, minute, part_name
from nodectl.ledger.history.database import iso
from nodectl.ledger.parts import named
from nodectl.ledger.store import Key, Place
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Part, PartKind
from nodectl.model.finding import Finding
from nodectl.model.status import Status

Lives = Mapping[str, Sequence[Event]]
Holds = Mapping[str, Sequence[Hold]]
_CORDONED, _IN_USE = "cordoned", "in use"


def list_rows(lives: Lives, holds: Holds) -> list[tuple[str, ...]]:
    """Host, state, since when, last verdict, parts, reason: the cordoned ones first."""
    order = sorted(lives, key=lambda host: host not in holds)
    return [_row(host, lives[host], holds.get(host, ())) for host in order]


def _row(host: str, life: Sequence[Event], holds: Sequence[Hold]) -> tuple[str, ...]:
    judged = _last_verdict(life)
    verdict = f"{judged.verdict}, {minute(judged.time)}" if judged else "-"
    looked = next((event for event in reversed(life) if event.kind is EventKind.SEEN and event.parts), None)
    parts = named(kept.part for kept in looked.parts) if looked else "-"
    if not holds:
        return (host, _IN_USE, "-", verdict, parts, "")
    since = minute(min(hold.cordon.time for hold in holds))
    return (host, _CORDONED, since, verdict, parts, "; ".join(dict.fromkeys(_why(hold) for hold in holds)))


def _why(hold: Hold) -> str:
    """Return the reason, and by whom; of a part its name and where it was."""
    cordon = hold.cordon
    if hold.whole:
        return f"{cordon.reason} ({cordon.who})"
    shown = few([f"{part_name(part)} of {cordon.host}" for part in hold.parts], 2)
    return f"{shown}: {cordon.reason} ({cordon.who})"


def part_rows(places: Mapping[Key, Place], cordons: Sequence[Event]) -> list[tuple[str, ...]]:
    """Identity, state, kind, model, where it was last seen, when."""
    held = {(kept.part.kind, kept.part.id) for cordon in cordons for kept in cordon.parts}
    return [
        (
            key[1],
            _CORDONED if key in held else "-",
            str(key[0]),
            place.kept.part.model or "-",
            f"{'formerly ' if place.gone else ''}{place.host}{_at(place.kept.part)}",
            minute(place.time),
        )
        for key, place in places.items()
    ]


def _at(part: Part) -> str:
    return "" if part.kind is PartKind.HOST else f" {part.place}"


def life_lines(
    life: Sequence[Event], key: Key | None, place: Place | None, holds: Holds, cordons: Sequence[Event]
) -> Iterator[str]:
    """Yield what it is and where, whether it is cordoned (a part also in no host), each event with what was found."""
    if key is not None:
        part = next(kept.part for event in reversed(life) for kept in event.parts)
        model = ", ".join(filter(None, [part.model, f"serial {part.serial}" if part.serial else ""]))
        yield f"{key[0]} {key[1]}" + (f": {model}" if model else "")
        if place is not None:
            gone = ", where another one is now" if place.gone else ""
            yield f"last seen {minute(place.time)} in {place.host}{_at(place.kept.part)}{gone}"
    shown_ids = set()
    for host_holds in holds.values():
        for hold in host_holds:
            if key is None or key in {(part.kind, part.id) for part in hold.parts}:
                shown_ids.add(hold.cordon.id)
                yield hold.text
    for cordon in cordons:
        if cordon.id not in shown_ids and key in {(kept.part.kind, kept.part.id) for kept in cordon.parts}:
            yield f"cordoned since {minute(cordon.time)}: {cordon.reason}; a host that shows it is left out"
    yield ""
    several = len({event.fleet for event in life}) > 1
    for event in life:
        fleet = f" ({event.fleet})" if several else ""
        yield f"{minute(event.time)}  {event.kind:<8}  {_told(event, of_part=key is not None)}{fleet}"
        for kept in event.parts:
            about = part_name(kept.part) if key is None else ""
            yield from (f"    {seen.step}: {_found(seen.finding, about)}" for seen in kept.findings)


def _told(event: Event, *, of_part: bool) -> str:
    where = event.host
    if of_part and event.parts and event.kind is EventKind.SEEN:
        where += _at(event.parts[0].part)
    if event.kind is EventKind.SEEN:
        verdict = f": {event.verdict} (acceptance {event.acceptance}, {event.nature})" if event.verdict else ""
        failed = f"; failed: {', '.join(event.failed)}" if event.failed else ""
        return f"{where}{verdict}{failed}"
    whole = "" if event.whole else f", {few([part_name(kept.part) for kept in event.parts])} alone"
    return f"{where}{whole} by {event.who}: {event.reason}"


def _found(finding: Finding, about: str) -> str:
    name = " ".join(filter(None, [finding.check, finding.subject]))
    of_part = f" [{about}]" if about and about != "the host" and about not in finding.subject else ""
    outcome = f"{finding.actual}; expected {finding.expected}" if finding.expected else finding.actual
    return f"{finding.status} {name}{of_part}: {outcome}"


def list_document(lives: Lives, holds: Holds, places: Mapping[Key, Place], cordons: Sequence[Event]) -> dict[str, Any]:
    """`hosts` with state and last verdict, `parts` with where they were last seen."""
    held = {(kept.part.kind, kept.part.id): cordon.id for cordon in cordons for kept in cordon.parts}
    return {
        "hosts": [_host_document(host, life, holds.get(host, ())) for host, life in lives.items()],
        "parts": [
            {
                **part_document(place.kept.part),
                "host": place.host,
                "seen": iso(place.time),
                "gone": place.gone,
                "cordon": held.get(key),
            }
            for key, place in places.items()
        ],
    }


def _host_document(host: str, life: Sequence[Event], holds: Sequence[Hold]) -> dict[str, Any]:
    judged = _last_verdict(life)
    return {
        "host": host,
        "cordoned": [
            {
                "cordon": hold.cordon.id,
                "since": iso(hold.cordon.time),
                "host": hold.cordon.host,
                "whole": hold.whole,
                "reason": hold.cordon.reason,
                "who": hold.cordon.who,
                "parts": [part_document(part) for part in hold.parts],
            }
            for hold in holds
        ],
        "verdict": str(judged.verdict) if judged else None,
        "acceptance": judged.acceptance if judged else None,
        "judged": iso(judged.time) if judged else None,
    }


def event_document(event: Event) -> dict[str, Any]:
    """One event with its parts, and what was found of them."""
    return {
        "id": event.id,
        "time": iso(event.time),
        "kind": str(event.kind),
        "fleet": event.fleet,
        "host": event.host,
        "who": event.who,
        "reason": event.reason,
        "whole": event.whole,
        "cordon": event.cordon,
        "acceptance": event.acceptance,
        "nature": event.nature,
        "verdict": None if event.verdict is None else str(event.verdict),
        "steps": {name: str(status) for name, status in event.steps.items()},
        "parts": [
            {
                **part_document(kept.part),
                "findings": [{"step": seen.step, **_finding(seen.finding)} for seen in kept.findings],
            }
            for kept in event.parts
        ],
    }


def part_document(part: Part) -> dict[str, str]:
    """Return what a part says of itself."""
    return {"kind": str(part.kind), "id": part.id, "model": part.model, "place": part.place, "serial": part.serial}


def _finding(finding: Finding) -> dict[str, str]:
    keys = ("check", "subject", "status", "action", "expected", "actual", "remedy", "evidence")
    return {name: str(getattr(finding, name)) for name in keys}


def _last_verdict(life: Sequence[Event]) -> Event | None:
    return next((event for event in reversed(life) if event.verdict is not None), None)


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LONGEST_REASON = 200
# `nodectl health --drain --resume` gives back what begins with its own mark: this must not
_MARK = "cordoned (nodectl ledger): "


def slurm_lines(holds: Mapping[str, Sequence[Hold]], returned: Sequence[str]) -> str:
    """`scontrol update NodeName=… State=DRAIN Reason=…` for each cordoned host, RESUME for what has returned."""
    drains = [
        shlex.join(
            ["scontrol", "update", f"NodeName={_slurm_name(host)}", "State=DRAIN", f"Reason={_reason(host_holds)}"]
        )
        for host, host_holds in holds.items()
    ]
    resumes = [shlex.join(["scontrol", "update", f"NodeName={_slurm_name(host)}", "State=RESUME"]) for host in returned]
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


def _slurm_name(host: str) -> str:
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

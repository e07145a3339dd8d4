"""The ledger as rows, lines and documents, as scontrol takes it, and the cordons that a verdict suggests."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nodectl.common.few import clipped
from nodectl.ledger.history.database import iso
from nodectl.ledger.store import Event, Judged, minute, open_cordons
from nodectl.model.acceptance import Acceptance, GpuIdentity, HostAcceptance, NodeVerdict
from nodectl.model.finding import Finding
from nodectl.model.status import Status

# each host's journal
Lives = Mapping[str, Sequence[Event]]


def list_rows(lives: Lives) -> list[tuple[str, ...]]:
    """Host, state, since when, last verdict, reasons: the cordoned ones first."""
    rows = []
    for host, life in lives.items():
        cordons, judged = open_cordons(life), _last_judged(life)
        since = minute(cordons[0].time) if cordons else "-"
        verdict = f"{judged.host.verdict}, {minute(judged.began)}" if judged else "-"
        why = "; ".join(dict.fromkeys(f"{cordon.reason} ({cordon.who})" for cordon in cordons))
        rows.append((host, "cordoned" if cordons else "in use", since, verdict, why))
    return sorted(rows, key=lambda row: row[1] != "cordoned")


def life_lines(life: Sequence[Event]) -> Iterator[str]:
    """Yield the open cordons, then each event with what was found, and the GPUs that are others than before."""
    yield from (cordon.text for cordon in open_cordons(life))
    yield ""
    gpus: Mapping[str, GpuIdentity] = {}
    for event in life:
        head = f"{minute(event.time)}  {event.kind:<8}  "
        if event.judged is None:
            yield f"{head}by {event.who}: {event.reason}"
        else:
            judged, host = event.judged, event.judged.host
            failed = f"; failed: {', '.join(host.failed)}" if host.failed else ""
            yield f"{head}{host.verdict} (acceptance {judged.acceptance}, {judged.nature}){failed}"
            yield from (f"    {seen.step}: {_found(seen.finding)}" for seen in host.reasons)
            now = {gpu.place: gpu for gpu in host.gpus}
            for place, gpu in now.items():
                if place in gpus and gpus[place].uuid != gpu.uuid:
                    yield f"    {place} is {gpu.text} now; it was {gpus[place].text}"
            gpus = now or gpus


def _found(finding: Finding) -> str:
    name = " ".join(filter(None, [finding.check, finding.subject]))
    outcome = f"{finding.actual}; expected {finding.expected}" if finding.expected else finding.actual
    return f"{finding.status} {name}: {outcome}"


def list_document(lives: Lives) -> dict[str, Any]:
    """`hosts` with their open cordons and their last verdict."""
    return {"hosts": [_host_document(host, life) for host, life in lives.items()]}


def _host_document(host: str, life: Sequence[Event]) -> dict[str, Any]:
    judged = _last_judged(life)
    return {
        "host": host,
        "cordoned": [
            {"since": iso(cordon.time), "reason": cordon.reason, "who": cordon.who} for cordon in open_cordons(life)
        ],
        "verdict": str(judged.host.verdict) if judged else None,
        "acceptance": judged.acceptance if judged else None,
        "judged": iso(judged.began) if judged else None,
    }


def event_document(event: Event) -> dict[str, Any]:
    """One event; of an acceptance with the host's verdict, its steps, its reasons and its GPUs."""
    document = {"id": event.id, "time": iso(event.time), "kind": str(event.kind), "host": event.host}
    if event.judged is None:
        return {**document, "who": event.who, "reason": event.reason}
    judged = asdict(event.judged)
    return {**document, **judged.pop("host"), "acceptance": judged["acceptance"], "nature": judged["nature"]}


def _last_judged(life: Sequence[Event]) -> Judged | None:
    return next((event.judged for event in reversed(life) if event.judged is not None), None)


_LONGEST_REASON = 160


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rejected host, and the first finding that rejected it."""

    host: str
    reason: str

    @property
    def command(self) -> str:
        """Return what an operator would type."""
        return f"nodectl ledger cordon {shlex.quote(self.host)} --reason {shlex.quote(self.reason)}"


def suggested(acceptance: Acceptance) -> tuple[Suggestion, ...]:
    """Return a suggestion for each rejected host."""
    rejected = [row for row in acceptance.hosts if row.verdict is NodeVerdict.REJECTED]
    return tuple(Suggestion(row.host, _reason(row)) for row in rejected)


def _reason(row: HostAcceptance) -> str:
    failed = [seen for seen in row.reasons if seen.finding.status is Status.FAILED]
    if not failed:
        return f"failed: {', '.join(row.failed)}"
    finding, more = failed[0].finding, len(failed) - 1
    name = f"{finding.check} {finding.subject}".strip()
    reason = " ".join(f"{name}: {finding.actual}".split())
    return clipped(reason, _LONGEST_REASON) + (f" (and {more} more)" if more else "")

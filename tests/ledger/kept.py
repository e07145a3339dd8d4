"""Hosts for tests of the ledger: parts read from the bundled recordings, and acceptances of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from nodectl.common.resources import recordings_dir
from nodectl.facts.catalogue import read_facts
from nodectl.ledger.parts import facts_needed, parts_of
from nodectl.model.acceptance import Acceptance, HostAcceptance, Part, Seen, node_verdict
from nodectl.model.finding import Finding
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.recordings.folder import read_host
from nodectl.recordings.mask import Template


@cache
def _kept(name: str) -> tuple[Recording, Template]:
    recording = read_host(recordings_dir() / name / "node01", "node01", name)
    return recording, Template.of({key: entry.stdout for key, entry in recording.entries.items()}, "node01")


def recorded(name: str, host: str, edits: Mapping[str, str] | None = None) -> Recording:
    """Another machine of the recording's kind, by the name `host`, with texts replaced in all its outputs."""
    recording, template = _kept(name)
    texts = template.filled(host)
    for old, new in (edits or {}).items():
        texts = {key: text.replace(old, new) for key, text in texts.items()}
    entries = {key: replace(entry, stdout=texts[key]) for key, entry in recording.entries.items()}
    return replace(recording, host=host, entries=entries)


def parts(name: str, host: str, edits: Mapping[str, str] | None = None) -> tuple[Part, ...]:
    """The parts of such a host."""
    return parts_of(host, read_facts(recorded(name, host, edits), facts_needed()))


def finding(
    host: str, subject: str, status: Status = Status.FAILED, check: str = "gemm", evidence: str = ""
) -> Finding:
    return Finding(host, check, status, subject, actual="amiss", evidence=evidence)


def accepted(
    hosts: Mapping[str, Sequence[Part]],
    steps: Mapping[str, Mapping[str, Status]],
    seen: Sequence[Seen] = (),
    *,
    number: str = "a1",
    began: float = 1000.0,
) -> Acceptance:
    """An acceptance with these steps' statuses; who has none took part in none."""
    rows = [
        HostAcceptance(host, node_verdict(steps.get(host, {}).values()), steps.get(host, {}), parts=tuple(own))
        for host, own in hosts.items()
    ]
    return Acceptance(
        number, "quick", "fleet", began, began + 60, "recorded", "0.1", hosts=tuple(rows), seen=tuple(seen)
    )

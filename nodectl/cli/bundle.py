"""What `nodectl ledger bundle` gathers: the host that is meant, what it says now, and what was kept of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nodectl.cli.app import App
from nodectl.cli.evidence import commands_of, judged, keep
from nodectl.cli.terminal import note, writing
from nodectl.common.documents import new_id
from nodectl.common.files import replace_file
from nodectl.common.paths import state_dir
from nodectl.common.process import operator
from nodectl.common.spelling import meant
from nodectl.errors import InventoryError, NodectlError, UnreachableError, UsageError
from nodectl.facts.catalogue import commands_for, read_facts
from nodectl.health.history import StateFile
from nodectl.ledger.accept import store
from nodectl.ledger.accept.certificate import certificate
from nodectl.ledger.bundle import evidence
from nodectl.ledger.bundle.archive import members, packed
from nodectl.ledger.bundle.evidence import Evidence
from nodectl.ledger.bundle.form import Case
from nodectl.ledger.document import life_lines
from nodectl.ledger.parts import facts_needed, parts_of
from nodectl.ledger.store import Ledger
from nodectl.model.acceptance import Part, PartKind
from nodectl.model.recording import Recording
from nodectl.recordings.folder import open_recording, read_host
from nodectl.recordings.source import ReplaySource, Source
from nodectl.report.findings import finding_document
from nodectl.transport.inventory.here import NAME, lists_here

_GPU = "GPU-"  # how a UUID begins, which people leave out
_REMEDY = "name a file in a folder that is there, and has room; so must $TMPDIR or /tmp"


def bundle_of(app: App, target: str, into: Path | None, earlier: Sequence[Path]) -> None:
    """Gather, mask, pack, write; the process ends with 3 where the host did not answer."""
    source, absent = _source(app)
    with app.ledger() as kept:
        fleet, host, part = _meant(app, kept, source, target)
        case = _case(app, kept, source, (fleet, host, part), absent)
        papers, names, users = _papers(app, kept, fleet, case, source)
    case = replace(case, before=(*case.before, *(_earlier(path, host) for path in earlier)))
    if not case.looks and not case.life and not case.known:
        raise UnreachableError(f"{host}: {case.silent}, and nothing was kept of it", "see nodectl ledger list --parts")
    made = time.time()
    path = into or Path(f"nodectl-bundle-{new_id(datetime.now(UTC))}.tar.gz")
    with writing(path, "--into" if into else "", _REMEDY):
        files = members(case, papers, names, users, made)
        if str(path) == "-":
            sys.stdout.buffer.write(packed(files, made))
        else:
            replace_file(path, packed(files, made), sync=True)
    _tell(app, case, path, list(files))


def _tell(app: App, case: Case, path: Path, names: Sequence[str]) -> None:
    if case.now is None:
        note(f"{case.host} did not answer: {case.silent}; the archive has what was kept of it")
    if not case.before:
        note("nothing of it was kept from earlier: what a reset has ended is not in the archive")
    if str(path) != "-":
        document = {
            "file": str(path), "host": case.host, "part": case.part.id if case.part else None,
            "answered": case.now is not None, "before": len(case.before), "members": list(names),
        }  # fmt: skip
        app.show("ledger-bundle", document, f"{path}: {len(names)} files, masked; read form.txt before you send it")
    if case.now is None:
        raise SystemExit(3)


def _source(app: App) -> tuple[Source | None, str]:
    """Return where hosts answer from; None, with the reason, where no inventory names any."""
    try:
        source = app.source
    except InventoryError as error:
        return None, error.message
    whole = replace(source, whole=True) if isinstance(source, ReplaySource) else source
    return whole, "the inventory has it no longer"


def _meant(app: App, kept: Ledger, source: Source | None, target: str) -> tuple[str, str, Part | None]:
    """Return fleet, host and part: a host by its name, else the part that begins so, where it was seen last."""
    names = {host.name for host in source.hosts} if source else set()
    if names == {NAME} and target and lists_here(target):
        target = NAME
    if target in names or target in kept.hosts():
        return app.fleet, target, None
    found = {(app.fleet, host, part) for host, part in _shown(source, target)} if app.replay else set()
    if not found:
        keys = (kept.parts_like(target) or kept.parts_like(f"{_GPU}{target}")) if target else ()
        places = [kept.place_of(key, app.fleet) or kept.place_of(key) for key in keys]
        found = {(place.fleet, place.host, place.kept.part) for place in places if place}
    found = found or {(app.fleet, host, part) for host, part in _shown(source, target)}
    if len(found) > 1:
        shown = ", ".join(sorted(part.id for _, _, part in found)[:2])
        raise UsageError(f"{target}: {len(found)} parts begin so", f"write more of it: {shown}, …")
    for fleet, host, part in found:
        return fleet, host, None if part.kind is PartKind.HOST else part
    hint = meant(target, sorted(names | {*kept.hosts()}))
    raise UsageError(f"{target}: no such part or host is known", f"{hint}see nodectl ledger list --parts".strip())


def _shown(source: Source | None, target: str) -> Iterator[tuple[str, Part]]:
    """Yield the hosts that show such a part now."""
    if source is None or len(target) < 4:
        return
    for host, answer in source.recordings(lambda host: commands_for(host, facts_needed())):
        if isinstance(answer, Recording):
            for part in parts_of(host.name, read_facts(answer, facts_needed())):
                if part.id.lower().startswith((target.lower(), f"{_GPU}{target}".lower())) or part.serial == target:
                    yield host.name, part


def _case(app: App, kept: Ledger, source: Source | None, about: tuple[str, str, Part | None], absent: str) -> Case:
    fleet, name, part = about
    host = next((one for one in source.hosts if one.name == name), None) if source and fleet == app.fleet else None
    silent = absent if fleet == app.fleet else f"it was last seen in {name} of another fleet: give -i {fleet}"
    now = None
    if source is not None and host is not None:
        answer = source.one(host, commands_of(app, host))
        now, silent = (answer, "") if isinstance(answer, Recording) else (None, answer.error or str(answer.outcome))
    before = evidence.kept(fleet, name)
    findings = judged(app, host, now) if host is not None and now is not None else ()
    if now is not None and app.replay is None:
        keep(app, now, findings)
    life = kept.life_of_part((part.kind, part.id)) if part else kept.life_of_host(name)
    known = kept.parts_in(name) if fleet == app.fleet else ()
    states = StateFile(state_dir() / "health", fleet).read()
    faults = states[name].faults if name in states else {}
    return Case(name, part, now, silent, tuple(findings), before, life, known, faults)


def _papers(
    app: App, kept: Ledger, fleet: str, case: Case, source: Source | None
) -> tuple[dict[str, str], list[str], list[str]]:
    """Return texts by file name, and names of hosts and logins that they may have."""
    findings = [finding_document(one) for one in case.findings]
    texts = {"findings.json": json.dumps(findings, indent=1, ensure_ascii=False)}
    if case.life:
        key = (case.part.kind, case.part.id) if case.part else None
        holds = kept.cordoned([case.host]) if fleet == app.fleet else {}
        lines = life_lines(case.life, key, kept.place_of(key) if key else None, holds, kept.open_cordons())
        texts["history.txt"] = "\n".join(lines) + "\n"
    if text := _certificate(kept, fleet, case.host):
        texts["certificate.txt"] = text
    hosts = source.hosts if source else ()
    login, _, machine = operator().partition("@")
    names = [*kept.hosts(), machine, *(name for host in hosts for name in (host.name, host.address))]
    users = [login, *(host.user for host in hosts if host.user)]
    return texts, [name for name in names if not name.replace(".", "").isdigit()], users


def _certificate(kept: Ledger, fleet: str, host: str) -> str:
    """Return the host's part of its last certificate; empty where there is none. The masked text has no digest."""
    judged = kept.acceptances(fleet, host)
    if not judged:
        return ""
    try:
        acceptance = store.find(judged[-1].acceptance)
    except NodectlError:
        return f"acceptance {judged[-1].acceptance}: {judged[-1].verdict}; its certificate is no longer kept\n"
    document = (store.folder_of(acceptance.id) / store.DOCUMENT).read_bytes()
    own = replace(acceptance, hosts=tuple(row for row in acceptance.hosts if row.host == host), asked="")
    text = certificate(own, document, acceptance.ended or acceptance.began)
    own_text, _, _ = text.rpartition("\nsha256 ")
    return f"{own_text}\nThis is the host's part, masked: its own digest and signature are of the whole.\n"


def _earlier(path: Path, host: str) -> Evidence:
    """Return an earlier recording; UsageError where the folder does not hold the host."""
    fleet = open_recording(str(path))
    if host not in fleet.hosts:
        raise UsageError(f"--before {path}: it holds no host {host}", f"it has {', '.join(list(fleet.hosts)[:5])}")
    recording = replace(read_host(fleet.hosts[host], host, fleet.name), recorded=None)
    return Evidence(recording.time or 0.0, (), recording)

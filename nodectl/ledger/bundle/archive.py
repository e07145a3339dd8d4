"""One archive for a vendor's support: the form, findings, history, certificate, raw outputs before and now; masked.

One masker is given all of it, that of `nodectl record --mask`; it leaves only what the part and its system are known by
(serial numbers, GPU UUIDs, models). What is longer than fits is cut between two lines, with a line that says so.
"""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nodectl.facts.gpus import Gpus
from nodectl.ledger.bundle.evidence import BUG_REPORT, has_report
from nodectl.ledger.bundle.form import Case, form
from nodectl.ledger.parts import identity_kind
from nodectl.model.acceptance import PartKind
from nodectl.model.recording import Entry, Recording
from nodectl.recordings.folder import OUT
from nodectl.recordings.mask import Masker
from nodectl.recordings.save import prepare, write_host

TOP = "nodectl-bundle"
_TEXT_CHARS = 2 << 20
_ALL_CHARS = 12 << 20
_LEAST_CHARS = 16 << 10
_REPORT_CHARS = 8 << 20
# what nvidia-debugdump encodes: no mask leaves anything of it to be read
_ENCODED = re.compile(r"(?:^[A-Za-z0-9+/=]{60,}\n){3,}", re.MULTILINE)
_LEFT_OUT = "nodectl: encoded lines are left out here\n"
_ABOUT = """
IN THIS ARCHIVE
findings.json: what is wrong now; history.txt: of the part and its host; certificate.txt: its last acceptance
now, before: raw outputs of the tools, a folder for each time; `nodectl --replay now health` judges them again
Masked: names, addresses, logins, secrets and all words that are not known. The sender has the originals.
"""


def members(
    case: Case, papers: Mapping[str, str], names: Sequence[str], users: Sequence[str], made: float
) -> dict[str, bytes]:
    """Return the files of the archive by name, masked, in order. OSError where there is no room to make them.

    `papers` are texts by file name; `names` of hosts and `users` may stand in them.
    """
    others = [name for name in dict.fromkeys(names) if name != case.host]
    masker = Masker([case.host, *others], users, set(_identities(case)))
    # a name that is no word, which no mask would find
    odd = "" if re.fullmatch(r"[\w.-]+", case.host) else case.host
    entries = {}
    for name, text in {"form.txt": form(case, made) + _ABOUT, **papers}.items():
        entries[name] = Entry(name, (), 0, _cut(text.replace(odd, "host01") if odd else text, _TEXT_CHARS), "", 0.0)
    paper, fitted = Recording(case.host, entries), _fitted([look.recording for look in case.looks])
    for recording in (*fitted, paper):
        masker.learn(recording)
    files = {name: entry.stdout.encode(errors="replace") for name, entry in masker.masked(paper).entries.items()}
    for number, recording in enumerate(fitted, 0 if case.now else 1):
        folder = _folder(masker.masked(recording), packs=has_report(recording))
        files |= {f"{f'before/{number}' if number else 'now'}/{name}": data for name, data in folder.items()}
    return dict(sorted(files.items()))


def packed(files: Mapping[str, bytes], made: float) -> bytes:
    """Return the files as .tar.gz: owner, rights and times tell nothing of who made it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{TOP}/{name}")
            member.size, member.mode, member.mtime = len(data), 0o600, int(made)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), mtime=0)


def _identities(case: Case) -> Iterator[str]:
    """Yield what the part and its system are known by, which the form asks for; a machine-id is none of a vendor's."""
    yield from (case.model, case.serial)
    for part in (*case.parts, *([case.part] if case.part else [])):
        if part.kind is PartKind.HOST:
            yield from (part.serial, part.model, part.id if identity_kind(part) == "serial number" else "")
        elif part.kind is PartKind.GPU or part == case.part:
            yield from (part.id, part.serial, part.model)
    for look in case.looks:
        gpus = look.get("gpus", Gpus)
        for gpu in gpus.devices if gpus else ():
            yield from filter(None, (gpu.name, gpu.serial, gpu.part_number, gpu.board_part_number, gpu.vbios_version))


def _fitted(recordings: Sequence[Recording]) -> list[Recording]:
    """Return the recordings, each text and all together within bounds; the newest take their part first."""
    left = _ALL_CHARS
    fitted = []
    for recording in recordings:
        entries = {}
        for key in sorted(recording.entries, key=lambda key: (key == BUG_REPORT, key)):
            entry, most = recording.entries[key], _TEXT_CHARS
            if key == BUG_REPORT:
                entry, most = replace(entry, stdout=_ENCODED.sub(_LEFT_OUT, entry.stdout)), _REPORT_CHARS
            texts = [_cut(text, max(_LEAST_CHARS, min(most, left))) for text in (entry.stdout, entry.stderr)]
            left -= sum(map(len, texts))
            entries[key] = replace(entry, stdout=texts[0], stderr=texts[1])
        fitted.append(replace(recording, entries=entries))
    return fitted


def _cut(text: str, most: int) -> str:
    """Return the first and last lines of a text that is longer; no line is parted, as its rest might show a secret."""
    if len(text) <= most:
        return text
    head = text[: text.rfind("\n", 0, most // 4) + 1]
    at = text.find("\n", len(text) - (most - most // 4))
    tail = text[at + 1 :] if at >= 0 else ""
    return f"{head}nodectl: cut: {len(text) - len(head) - len(tail)} characters are left out here\n{tail}"


def _folder(recording: Recording, *, packs: bool) -> dict[str, bytes]:
    """Return a masked recording's files, as `--replay` reads them; NVIDIA's own report is packed again."""
    with tempfile.TemporaryDirectory(prefix="nodectl-") as made:
        root = Path(made) / "recording"
        prepare(root, {recording.host: {}}, masked=True)
        write_host(root, recording)
        files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    report = f"{recording.host}/{BUG_REPORT}"
    if packs:
        files[f"{report}.log.gz"] = gzip.compress(files.pop(f"{report}{OUT}"), mtime=0)
    return files

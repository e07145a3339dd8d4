"""Raw outputs of a host with a fault, kept before a reset or reboot ends its traces: once for each finding.

Where it is installed, NVIDIA's own report is among them: its documents on RMA and on Xids want it taken right after the
fault and before a power cycle. It runs with `--safe-mode`, which leaves out what may hang, and for a minute;
`--extra-system-data`, which NVIDIA names beside it, has the kernel trace all processors (nvidia-bug-report.sh of driver
580) and is left to the operator. It runs as root only, and in a folder of the login: no line of sudoers for it is safe.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from nodectl.common.few import clipped
from nodectl.common.files import folder_name, read_json, replace_file
from nodectl.common.paths import state_dir
from nodectl.errors import NodectlError
from nodectl.facts.base import script
from nodectl.model.finding import Finding
from nodectl.model.recording import Command, Recording
from nodectl.recordings.save import prepare, write_host

_SCHEMA, _ABOUT = "nodectl.evidence/1", "evidence.json"
_KEPT = 4
_LONGEST_NAME = 200
_REPORT_S = 60
_SHOWN = 300
_REPORT = f"""\
command -v nvidia-bug-report.sh >/dev/null 2>&1 || exit 127
folder=$(mktemp -d /dev/shm/nodectl.XXXXXX 2>/dev/null || mktemp -d) && cd "$folder" || exit
trap 'rm -rf -- "$folder"' EXIT
as=
[ "$(id -u)" -eq 0 ] || as='sudo -n'
timeout -k 5 {_REPORT_S} $as nvidia-bug-report.sh --safe-mode --output-file report.log >said 2>&1
status=$?
if [ -s report.log.gz ]; then gzip -dc report.log.gz; elif [ -s report.log ]; then cat report.log; else cat said; fi
exit "$status"
"""
# in addition to the commands of the facts
BUG_REPORT = Command("nvidia-bug-report", script("nvidia-bug-report", _REPORT).argv, deadline_s=_REPORT_S + 15)


def keep(fleet: str, recording: Recording, findings: Iterable[Finding]) -> Path | None:
    """Keep the recording for the findings that a reset would end; None if there is none, or they were kept last.

    OSError if the state folder takes no more: then nothing of it stays there.
    """
    reasons = sorted({_line(finding) for finding in findings if finding.ends_traces})
    # fleets may share names, and a name may be longer than a folder's
    digest = hashlib.sha256(f"{fleet}\0{recording.host}".encode(errors="surrogatepass")).hexdigest()[:8]
    host = recording.host if len(folder_name(recording.host)) <= _LONGEST_NAME else "host"
    place = state_dir() / "evidence" / f"{folder_name(host)}-{digest}"
    entry = recording.entries.get("boot")
    boot = entry.stdout.split()[:1] if entry else []
    about = {"schema": _SCHEMA, "host": recording.host, "reasons": reasons, "boot": boot}
    folders = sorted(place.glob("[0-9]*"))
    if not reasons or (folders and _about(folders[-1]) == about):
        return None
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = str(time.time_ns())
    draft = place / f".draft-{name}"
    try:
        prepare(draft, {host: {}})
        write_host(draft, replace(recording, host=host))
        replace_file(draft / _ABOUT, json.dumps(about, indent=1) + "\n", sync=True)
        draft.rename(place / name)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    for path in folders[: 1 - _KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    return place / name


def _line(finding: Finding) -> str:
    name = " ".join(filter(None, (finding.check, finding.subject)))
    return " ".join(f"{name}: {clipped(finding.actual, _SHOWN)} (action: {finding.action})".split())


def _about(path: Path) -> object:
    try:
        return read_json(path / _ABOUT, "")
    except NodectlError:
        return None

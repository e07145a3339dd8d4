"""Raw outputs that are kept before a reset or a reboot ends the traces of a fault."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.cli import evidence as keeping
from nodectl.cli.app import App
from nodectl.cli.evidence import take
from nodectl.common.paths import state_dir
from nodectl.common.resources import recordings_dir
from nodectl.errors import UsageError
from nodectl.ledger import evidence
from nodectl.model.finding import Finding, traces_first
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.recordings.folder import read_host
from nodectl.recordings.source import LiveSource

DEAD = "0000:4e:00"
XID = f"<4>[1296000.125] NVRM: Xid (PCI:{DEAD}): 79, pid=19174, name=python3, GPU has fallen off the bus.\n"
LOST = Finding("node01", "xid", Status.FAILED, f"Xid 79 {DEAD}", "reboot", actual="fallen", remedy="reboot the node")


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The recorded DGX A100 with a GPU that has fallen off the bus."""
    folder = tmp_path / "dead"
    shutil.copytree(recordings_dir() / "dgx-a100", folder)
    log = folder / "node01" / "dmesg.out"
    log.write_text(log.read_text() + XID)
    return folder


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The fleet of `-i`, of which nobody answers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "[all]\nnode01 ansible_host=127.0.0.1 ansible_port=1\nnode02 ansible_host=127.0.0.1 ansible_port=1\n"
    )
    return str(inventory)


def look(dead: Path) -> Recording:
    return replace(read_host(dead / "node01", "node01", "dead"), recorded=None)


def kept(host: str) -> Sequence[Path]:
    """The folders that are kept of a host, the oldest first."""
    return sorted((state_dir() / "evidence").glob(f"{host}-*/*"))


def reasons(folder: Path) -> str:
    return "; ".join(json.loads((folder / "evidence.json").read_text())["reasons"])


def test_evidence_is_kept_once_for_a_finding_and_four_times_at_most(dead: Path, fleet: str) -> None:
    first, lost = look(dead), traces_first(LOST)
    assert evidence.keep(fleet, first, [replace(LOST, action="none", remedy="wait")]) is None
    assert evidence.keep(fleet, first, [lost]) is not None and evidence.keep(fleet, first, [lost]) is None
    places = [evidence.keep(fleet, first, [replace(lost, actual=f"{number} times")]) for number in range(6)]
    assert all(places) and len(kept("node01")) == 4
    newest = kept("node01")[-1]
    assert "5 times" in reasons(newest) and (newest / "node01" / "boot.out").read_text() == first.entries["boot"].stdout
    assert places[-1] is not None and {path.stat().st_mode & 0o077 for path in places[-1].rglob("*")} == {0}
    assert not kept("node02")
    assert evidence.keep("another", first, [lost]) is not None, "of another fleet it is another host"


def test_who_is_asked_for_evidence_keeps_it(dead: Path, fleet: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = App((fleet,), replay=str(dead))
    source = app.source
    take(app, source, source.hosts, [traces_first(LOST), replace(LOST, host="node02", remedy="wait", action="none")])
    (found,) = kept("node01")
    assert "Xid 79" in reasons(found) and "fallen off" in (found / "node01" / "dmesg.out").read_text()
    assert "evidence is kept before a reset" in capsys.readouterr().err
    take(app, source, source.hosts, [traces_first(replace(LOST, host="node02"))])
    assert "node02: its evidence is not kept" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="NVIDIA's report is for root")
def test_the_report_of_nvidia_is_taken_and_its_folder_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "bin" / "nvidia-bug-report.sh"
    tool.parent.mkdir()
    asks = '[ "$*" = "--safe-mode --output-file report.log" ] || exit 1'
    tool.write_text(f'#!/bin/sh\n{asks}\nprintf "GPU has fallen off the bus" | gzip > report.log.gz\n')
    tool.chmod(0o755)
    before = set(Path("/dev/shm").glob("nodectl.*"))
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    done = subprocess.run(evidence.BUG_REPORT.argv, capture_output=True, text=True, check=True)
    assert done.stdout == "GPU has fallen off the bus"
    assert set(Path("/dev/shm").glob("nodectl.*")) <= before


def test_before_a_reboot_provision_keeps_what_it_would_end(
    dead: Path, fleet: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App((fleet,))
    hosts = app.inventory.hosts(None)
    monkeypatch.setattr(keeping, "look_at", lambda *_: lambda hosts: [traces_first(LOST)])
    monkeypatch.setattr(LiveSource, "one", lambda *_: look(dead))
    keeping.keep_evidence(app, hosts)
    assert len(kept("node01")) == 1 and not kept("node02")

    def broken(*_: object) -> None:
        raise UsageError("no profile", "name one")

    monkeypatch.setattr(keeping, "look_at", broken)
    keeping.keep_evidence(app, hosts)
    assert "no evidence is kept before a reboot" in capsys.readouterr().err

"""The end of a play compares the hosts as `nodectl health` does: what they brought travels as JSON."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.nodectl.fleet.plugins.action.health import ActionModule
from nodectl.health.fleet import look
from nodectl.health.history import StateFile
from nodectl.health.host import REPLAYED, judge_answer, order_of
from nodectl.health.verify import member_document, member_of
from nodectl.recordings.folder import bundled, open_recording
from nodectl.recordings.source import Source, replay_source
from tests.lab.recorded_host import another_machine

KERNEL = "Linux 5.15.0-91-generic"
ACCEPTED = {"accept": [{"check": "fleet_kernel", "until": "2999-01-01", "why": "it is on trial"}]}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """Three hosts, one of them with another kernel."""
    recorded = bundled()["dgx-a100"]
    for number in (1, 2, 3):
        another_machine(recorded / "node01", tmp_path / f"node0{number}")
    shutil.copy(recorded / "recording.yml", tmp_path)
    uname = tmp_path / "node02" / "uname.out"
    uname.write_text(KERNEL + uname.read_text()[len(KERNEL) - 1 :].lstrip("0123456789.-abcdefghijklmnopqrstuvwxyz"))
    return replay_source(open_recording(str(tmp_path)), None)


@pytest.fixture
def hostvars(source: Source) -> dict[str, dict[str, Any]]:
    """What each host's own task registered, after a way through JSON."""
    registered = {}
    for host in source.hosts:
        order = order_of(host, {}, (), occasions=REPLAYED)
        member = judge_answer(order, source.one(host, order.commands)).member
        assert member is not None
        document = json.loads(json.dumps(member_document(member)))
        assert member_of(document) == member
        registered[host.name] = {"judged": {"member": document}}
    return registered


def compared(hostvars: dict[str, dict[str, Any]]) -> dict[str, Any]:
    action = SimpleNamespace(_task=SimpleNamespace(args={"compare": "judged"}))
    answer: dict[str, Any] = ActionModule._compared(
        action, {"hostvars": hostvars, "ansible_play_hosts": list(hostvars)}
    )
    return answer


def test_a_play_finds_what_health_finds_of_the_hosts_side_by_side(
    source: Source, hostvars: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    looked = look(source, names={}, extra_dirs=(), state=StateFile(tmp_path / ".state", "fleet")).findings
    beside = [finding for finding in looked if finding.check.startswith("fleet_")]
    answer = compared(hostvars)
    assert [(found["host"], found["check"], found["actual"]) for found in answer["findings"]] == [
        (finding.host, finding.check, finding.actual) for finding in beside
    ]
    assert [finding.host for finding in beside if finding.check == "fleet_kernel"] == ["node02"]
    assert any("warning fleet_kernel: 5.15.0-91-generic" in line for line in answer["of"]["node02"]["told"])
    assert "node01" not in answer["of"]


def test_a_site_s_policy_holds_there_too(hostvars: dict[str, dict[str, Any]]) -> None:
    hostvars["node02"]["nodectl_health"] = ACCEPTED
    (finding,) = (found for found in compared(hostvars)["findings"] if found["check"] == "fleet_kernel")
    assert finding["status"] == "skipped" and "it is on trial" in json.dumps(finding)

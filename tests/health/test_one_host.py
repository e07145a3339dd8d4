"""One host: what it should be, and that its output or folder ends no look at the others."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl.health import fleet
from nodectl.health.fleet import Health, look
from nodectl.health.history import StateFile
from nodectl.health.host import HostHealth, Order, judge_answer, wanted_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.recordings.folder import bundled, open_recording
from nodectl.recordings.source import replay_source
from tests.lab.recorded_host import another_machine


@dataclass(frozen=True)
class Fleet:
    folder: Path

    def put(self, host: str, name: str, text: str) -> None:
        (self.folder / host / name).write_text(text)

    def looked(self) -> Health:
        source = replay_source(open_recording(str(self.folder)), None)
        return look(source, names={}, extra_dirs=(), state=StateFile(self.folder / ".state", "fleet"))


@pytest.fixture
def three(tmp_path: Path) -> Fleet:
    recorded = bundled()["dgx-a100"]
    for number in (1, 2, 3):
        another_machine(recorded / "node01", tmp_path / f"node0{number}")
    shutil.copy(recorded / "recording.yml", tmp_path)
    return Fleet(tmp_path)


def of(health: Health, host: str) -> list[Finding]:
    return [finding for finding in health.findings if finding.host == host]


@pytest.mark.parametrize("depth", [200_000])
@pytest.mark.parametrize("name", ["lab.out", "index.json"])
def test_json_nested_without_end_is_unknown_on_its_host_alone(three: Fleet, name: str, depth: int) -> None:
    before = three.looked()
    three.put("node02", name, "[" * depth + "]" * depth)
    after = three.looked()
    alone = [finding for finding in of(after, "node01") if not finding.check.startswith("fleet")]
    assert alone == [finding for finding in of(before, "node01") if not finding.check.startswith("fleet")]
    assert set(after.hosts) == set(before.hosts)


def test_a_host_that_nobody_foresaw_is_unknown(three: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(order: Order, answer: Recording | CommandResult) -> HostHealth:
        if order.host.name == "node02":
            raise RecursionError("maximum recursion depth exceeded")
        return judge_answer(order, answer)

    monkeypatch.setattr(fleet, "judge_answer", fails)
    health = three.looked()
    (found,) = of(health, "node02")
    assert (found.check, found.status) == ("reach", Status.UNKNOWN)
    assert "RecursionError" in found.actual
    assert len(of(health, "node01")) > 100
    assert len(of(health, "node03")) > 100


def test_hardware_is_judged_where_nobody_named_the_stack() -> None:
    wanted = wanted_of(Host("a", "a"), {"hardware": "dgx-a100"}, ())
    assert wanted.resolved is not None and wanted.resolved.hardware.gpus == 8
    assert wanted.resolved.stack.torch is None and wanted.resolved.nccl_env == {}
    assert [(each.check, each.status) for each in wanted.findings] == [("profiles", Status.UNKNOWN)]


def test_a_host_without_any_profile_is_only_compared() -> None:
    wanted = wanted_of(Host("a", "a"), {}, ())
    assert wanted.resolved is None and wanted.findings[0].status is Status.UNKNOWN

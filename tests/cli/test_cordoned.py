"""What an acceptance and a look at parts do to the ledger, and whom commands leave out for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.cli import cordoned
from nodectl.cli.app import App
from nodectl.ledger.parts import facts_needed
from nodectl.model.acceptance import Acceptance, Seen
from nodectl.model.host import Host
from nodectl.model.recording import Command
from nodectl.model.status import Status
from nodectl.probes import quick
from nodectl.recordings.source import Answer, CommandsOf, LiveSource
from nodectl.transport.base import Transport
from nodectl.transport.router import open_transport
from tests.ledger.kept import accepted, finding, parts, recorded

NODE02, NODE07 = parts("dgx-a100", "node02"), parts("dgx-a100", "node07")
BAD = NODE02[2]
EDITED = {NODE07[4].id: BAD.id}
MOVED = parts("dgx-a100", "node07", EDITED)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    (tmp_path / "hosts.ini").write_text("[all]\nnode02\nnode07\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    inventory = (str(tmp_path / "hosts.ini"),)
    return App.create(inventory=inventory, limit=None, replay=None, output=None, forks=None)


def rejected() -> Acceptance:
    seen = Seen("gemm", finding("node02", "GPU 1, bf16"))
    steps = {"node02": {"gemm": Status.FAILED}, "node07": {"gemm": Status.OK}}
    made = accepted({"node02": NODE02, "node07": NODE07}, steps, [seen])
    first, second = made.hosts
    return replace(made, hosts=(replace(first, reasons=(seen,)), second))


def test_nothing_is_made_where_nothing_was_kept(app: App, tmp_path: Path) -> None:
    assert cordoned.recognise(app, {"node07": MOVED}) == set()
    assert cordoned.look_for_cordoned(app) is None
    assert not list((tmp_path / "state").rglob("*.sqlite"))


def test_an_acceptance_is_kept_and_its_rejected_hosts_named(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    cordoned.keep_in_ledger(app, rejected(), cordon=False)
    command = "nodectl ledger cordon node02 --reason 'gemm GPU 1, bf16: amiss'"
    assert capsys.readouterr().err == f"to leave node02 out of all work: {command}\n"
    with app.ledger() as ledger:
        assert ledger.cordoned(["node02"]) == {} and ledger.parts_in("node02")
    cordoned.keep_in_ledger(app, rejected(), cordon=True)
    assert capsys.readouterr().err == "cordoned: node02: gemm GPU 1, bf16: amiss\n"
    cordoned.keep_in_ledger(app, rejected(), cordon=True)
    assert capsys.readouterr().err == ""
    with app.ledger() as ledger:
        (hold,) = ledger.cordoned(["node02", "node07"])["node02"]
        assert hold.cordon.acceptance == "a1" and len(hold.parts) == len(NODE02)


def test_a_part_is_recognised_where_parts_are_asked_for(
    app: App, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cordoned.keep_in_ledger(app, rejected(), cordon=True)
    capsys.readouterr()
    hosts = {"node02": recorded("dgx-a100", "node02"), "node07": recorded("dgx-a100", "node07", EDITED)}
    asked: dict[str, tuple[Command, ...]] = {}

    def recordings(self: LiveSource, commands_of: CommandsOf) -> list[tuple[Host, Answer]]:
        asked.update({host.name: tuple(commands_of(host)) for host in self.hosts})
        return [(host, hosts[host.name]) for host in self.hosts]

    monkeypatch.setattr(LiveSource, "recordings", recordings)
    transport: Transport = open_transport()
    both = tuple(Host(name, name) for name in hosts)
    choice = quick.choose(transport, both[1:], 1e12, 1, cordoned.look_for_cordoned(app))
    assert choice.hosts == () and {fact.subject for fact in facts_needed()} >= {"gpus", "host_serial"}
    assert "host-serial" in {command.key for command in asked["node07"]}
    said = capsys.readouterr().err
    assert said.startswith(f"left out: {BAD.id} in node07 (GPU 3) was cordoned on ") and " as GPU 1 of node02: " in said
    with app.ledger() as ledger:
        assert list(ledger.cordoned(["node07"])) == ["node07"]

    app.narrow = cordoned._with_cordoned
    choice = quick.choose(transport, both[1:], 1e12, 1, cordoned.look_for_cordoned(app))
    assert [host.name for host in choice.hosts] == ["node07"]
    assert capsys.readouterr().err.startswith(f"taken in all the same: {BAD.id} in node07")

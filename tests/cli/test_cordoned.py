"""What an acceptance does to the ledger."""

from pathlib import Path

import pytest

from nodectl.cli import cordoned
from nodectl.cli.app import App
from nodectl.model.status import Status
from tests.ledger.kept import accepted

REJECTED = accepted({"node02": {"gemm": Status.FAILED}, "node07": {"gemm": Status.OK}})


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    (tmp_path / "hosts.ini").write_text("[all]\nnode02\nnode07\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    inventory = (str(tmp_path / "hosts.ini"),)
    return App.create(inventory=inventory, limit=None, replay=None, output=None, forks=None)


def test_nothing_is_made_where_nothing_was_kept(app: App, tmp_path: Path) -> None:
    cordoned.note_cordoned(app, app.hosts)
    assert not list((tmp_path / "state").rglob("*.sqlite"))


def test_an_acceptance_is_kept_and_its_rejected_hosts_named(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    cordoned.keep_in_ledger(app, REJECTED, cordon=False)
    command = "nodectl ledger cordon node02 --reason 'gemm GPU 1, bf16: amiss'"
    assert capsys.readouterr().err == f"to leave node02 out of all work: {command}\n"
    with app.ledger() as ledger:
        assert ledger.cordoned(["node02"]) == {} and ledger.life("node02")
    cordoned.keep_in_ledger(app, REJECTED, cordon=True)
    assert capsys.readouterr().err == "cordoned: node02: gemm GPU 1, bf16: amiss\n"
    cordoned.keep_in_ledger(app, REJECTED, cordon=True)
    assert capsys.readouterr().err == ""
    with app.ledger() as ledger:
        assert list(ledger.cordoned(["node02", "node07"])) == ["node02"]

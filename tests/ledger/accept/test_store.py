"""Acceptances as files: read as they were written, found by their fleet, and refused where they are none."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.ledger.accept import store
from nodectl.model.acceptance import Acceptance, Seen, Taken
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from tests.ledger.accept.made import NAMES, acceptance, done, found, means


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def _kept(name: str, **more: object) -> Acceptance:
    from nodectl.ledger.accept.judge import verdicts

    own = replace(acceptance(done("health"), done("tcp", took_s=12.5)), id=name, **more)  # type: ignore[arg-type]
    own = replace(own, hosts=verdicts(own.steps, own.seen, {}, means()))
    store.save(own, store.folder_of(name))
    return own


def test_it_is_read_as_it_was_written() -> None:
    measurement = Measurement("tcp", ("node01", "node02"), 9.4, "Gbit/s", conditions={"streams": 1, "window": [1, 2]})
    seen = (Seen("tcp", found("node03", Status.FAILED)),)
    own = _kept("20261123T220000Z-0a1b", seen=seen, taken=(Taken("tcp", measurement),))
    assert store.read(store.folder_of(own.id) / store.DOCUMENT) == own
    assert oct(store.folder_of(own.id).stat().st_mode)[-3:] == "700"
    assert oct((store.folder_of(own.id) / store.DOCUMENT).stat().st_mode)[-3:] == "600"


def test_the_latest_of_a_fleet_and_what_its_steps_took() -> None:
    _kept("20261123T220000Z-0a1b", ended=1_795_000_100.0)
    _kept("20261123T230000Z-0a1c")  # ended early
    _kept("20261123T234500Z-0a1d", fleet="other.yml")
    (store.folder_of("20261123T235900Z-0a1e") / store.DOCUMENT).write_text("{")
    whole = store.latest("inventory.yml")
    assert whole is not None
    assert whole.id == "20261123T220000Z-0a1b"
    assert store.known_seconds("inventory.yml", "quick", len(NAMES)) == {"health": 1.0, "tcp": 12.5}
    assert store.known_seconds("inventory.yml", "quick", 3) == store.known_seconds("inventory.yml", "standard", 8) == {}


def test_the_last_that_accepted_a_host() -> None:
    accepted = _kept("20261123T220000Z-0a1b", ended=1_795_000_100.0)
    rejecting = (Seen("tcp", found("node01", Status.FAILED)),)
    rejected = _kept("20261123T230000Z-0a1c", ended=1_795_000_200.0, seen=rejecting)
    assert store.last_accepted("inventory.yml", "node01") == accepted
    assert store.last_accepted("inventory.yml", "node02") == rejected
    with pytest.raises(UsageError, match="node09 has no accepted figures"):
        store.last_accepted("inventory.yml", "node09")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": "nodectl.accept/9"}', '{"schema": "nodectl.accept/1", "id": 3}']
)
def test_what_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError):
        store.read(tmp_path / "x.json")

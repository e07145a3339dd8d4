"""Trials as files: found by id or path, refused where they are none, never half written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.trials import store
from nodectl.trials.applied import read_proposal
from nodectl.trials.propose import proposal_of, propose
from tests.trials.saved_trial import trial


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_written_and_read_back_whole() -> None:
    path = store.save(trial())
    assert store.read(path) == trial()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_found_by_id_its_beginning_or_its_file(tmp_path: Path) -> None:
    first, second = trial("20261121T120000Z-aaaa"), trial("20261121T130000Z-bbbb")
    with pytest.raises(UsageError, match="there is no trial yet"):
        store.find("last")
    store.save(first)
    path = store.save(second)
    assert store.find("last") == second
    assert store.find("20261121T12") == first
    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    assert store.find(str(copy)) == second
    listed = [each for each in store.trials() if not isinstance(each, str)]
    assert [(each.id, each.summaries[0].verdict) for each in listed] == [(second.id, "better"), (first.id, "better")]
    with pytest.raises(UsageError, match="2 trials begin with 20261121"):
        store.find("20261121")
    with pytest.raises(UsageError, match="no trial nosuch"):
        store.find("nosuch")


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda given: given.pop(name)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda given: given.update(schema="nodectl.probe/1"), "no nodectl.tune-trial/1 in it"),
        (without("series"), "malformed trial: KeyError('series')"),
        (lambda given: given["series"][0]["pairs"][0].update(baseline="fast"), "0.pairs.0.baseline: Input should"),
        (without("candidates"), "malformed trial: KeyError('candidates')"),
        (lambda given: given["findings"][0].update(colour="red"), "malformed trial"),
    ],
)
def test_what_is_no_trial(spoil: Callable[[dict[str, Any]], None], told: str) -> None:
    path = store.save(trial())
    given = json.loads(path.read_text())
    spoil(given)
    path.write_text(json.dumps(given))
    with pytest.raises(UsageError) as refused:
        store.read(path)
    assert told in refused.value.message and str(path) in refused.value.message


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.write_text("all: {hosts: {a: {}}}\n"), "is not a proposal of nodectl"),
        (lambda path: path.with_suffix(".evidence.json").unlink(), "won.evidence.json: No such file"),
        (lambda path: path.with_suffix(".evidence.json").write_text("{}"), "no nodectl.evidence/1 in it"),
    ],
)
def test_what_is_no_proposal(tmp_path: Path, spoil: Callable[[Path], object], told: str) -> None:
    path = tmp_path / "won.yml"
    propose(proposal_of(trial(), None), path)
    spoil(path)
    with pytest.raises(UsageError) as refused:
        read_proposal(path)
    assert told in refused.value.message

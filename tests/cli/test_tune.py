"""`nodectl tune` without a host: recorded series judged, trials listed and shown, proposals written or refused."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from nodectl.cli.root import cli
from nodectl.errors import UsageError
from nodectl.trials import store
from tests.conftest import Cli
from tests.trials.saved_trial import trial
from tests.trials.trials import gaining

WON, LOST = "20261121T120000Z-aaaa", "20261121T130000Z-bbbb"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """A state folder with two trials; as the environment for the command line."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store.save(trial(WON))
    store.save(trial(LOST, series=(gaining(-30, profile="article-20g"),)))
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def ask(nodectl: Cli, env: Mapping[str, str], *args: str) -> tuple[int, dict[str, Any], str]:
    done = nodectl("--output", "json", "tune", *args, check=False, env=env)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def test_list_and_show(nodectl: Cli, state: Mapping[str, str]) -> None:
    status, document, _ = ask(nodectl, state, "list")
    assert (status, document["schema"]) == (0, "nodectl.tune-list/1")
    assert [(each["id"], each["summaries"][0]["verdict"]) for each in document["trials"]] == [
        (LOST, "worse"),
        (WON, "better"),
    ]
    status, document, told = ask(nodectl, state, "show", "20261121T13")
    assert (status, document["id"], document["trials"][0]["verdict"]) == (0, LOST, "worse")
    assert "slow" in told  # its findings
    shown = nodectl("tune", "show", WON, env=state).stdout
    assert shown.splitlines()[-1] == "article-20g against own: better: is better, and nowhere worse"
    assert ask(nodectl, state, "show", "nosuch")[0] == 2


def test_what_won_is_written_and_what_lost_is_not(nodectl: Cli, state: Mapping[str, str], tmp_path: Path) -> None:
    path = tmp_path / "won.yml"
    status, document, _ = ask(nodectl, state, "propose", WON, "--write", str(path))
    assert (status, document["proposal"], document["profile"]) == (0, str(path), "article-20g")
    assert set(yaml.safe_load(path.read_text())["all"]["hosts"]) == {"a", "b"}
    assert json.loads(Path(document["evidence"]).read_text())["trials"][0]["verdict"] == "better"
    status, _, told = ask(nodectl, state, "propose", LOST, "--write", str(tmp_path / "lost.yml"))
    assert status == 1 and "article-20g is not better than own" in told
    assert not (tmp_path / "lost.yml").exists()


INVENTORY = "[gpus]\na ansible_host=192.0.2.1\nb ansible_host=192.0.2.2\n[gpus:vars]\nnodectl_stack=cu128\n"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--profiles", "stock"), "--profiles needs a baseline and a candidate"),
        (("--profiles", "stock,nosuch"), "no tuning profile 'nosuch'"),
        (("--profiles", "stock,roce", "--probes", "nosuch"), "no probe 'nosuch'"),
        (("--profiles", "stock,roce", "--probes", ""), "nothing to measure"),
        (("--profiles", "stock,roce"), "there is no terminal to ask on: nothing was changed"),
        (("--profiles", "stock,roce", "--", "--batch", "4"), "'--batch' is no option of a trial"),
    ],
)
def test_refused_before_any_host_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], told: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(INVENTORY)
    done = CliRunner().invoke(cli, ["-i", str(inventory), "tune", "trial", *args])
    assert isinstance(done.exception, UsageError), done.output
    assert told in done.exception.message
    assert done.exception.exit_status == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_trial_that_is_ended_before_its_first_turn_says_that_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    def warming_up(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(10)

    # the command has its module's name
    monkeypatch.setattr(import_module("nodectl.cli.tune.trial"), "_run", warming_up)
    inventory = tmp_path / "hosts"
    inventory.write_text("a ansible_connection=local nodectl_stack=none\n")
    argv = ["-i", str(inventory), "tune", "trial", "--profiles", "stock,article-20g", "--probes", "memory", "--yes"]
    # outside of what the command itself hears it would end the tests
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        done = CliRunner().invoke(cli, argv)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert "nothing was changed" in done.output and "nothing is kept of this trial" in done.output, done.output
    assert done.exit_code != 0

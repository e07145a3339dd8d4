"""Tunings on live lab hosts: what is known to win, to lose and to do nothing; what won goes on and comes off again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.trials.propose import proposal_of, propose
from tests.conftest import Cli, LabUnderTest
from tests.trials.saved_trial import trial

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]

RMEM, WMEM = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"
BIG, SMALL = "4096 131072 16777216", "4096 131072 212992"
WIN = {RMEM: BIG, WMEM: "4096 16384 16777216"}


def proposal(path: Path, hosts: tuple[str, ...]) -> Path:
    """As a trial would have written it: buffers of 16 MiB to send from."""
    proposal = proposal_of(trial(hosts={host: {} for host in hosts}), None)
    propose(replace(proposal, overrides={"sysctl": {WMEM: WIN[WMEM]}}), path)
    return path


@pytest.mark.slow
def test_a_proposal_is_looked_at_before_it_is_applied(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    path = proposal(tmp_path / "won.yml", lab4.hosts[:2])
    done = nodectl("-i", lab4.inventory, "--output", "json", "tune", "apply", str(path), "--check", "--diff")
    document = json.loads(done.stdout)
    assert document["schema"] == "nodectl.tune-apply/1"
    # only those that it is for
    assert set(document["hosts"]) == set(lab4.hosts[:2])
    assert all(each["changed"] for each in document["hosts"].values())
    assert WIN[WMEM] in done.stderr
    assert "16777216" not in lab4.ssh(lab4.hosts[0], f"sysctl -n {WMEM}")


@dataclass(frozen=True)
class Fleet:
    """Two hosts with profiles of their own."""

    cli: Cli
    name: str
    inventory: str

    def trial(self, *args: str) -> tuple[int, dict[str, Any], str]:
        given = ("-i", self.inventory, "--output", "json", "tune", "trial", "--probes", "tcp", *args)
        done = self.cli(*given, check=False, timeout=1200)
        return done.returncode, json.loads(done.stdout), done.stderr

    def values(self, key: str = RMEM) -> set[str]:
        done = self.cli("-i", self.inventory, "--output", "json", "exec", "--", "sysctl", "-n", key)
        return {" ".join(each["stdout"].split()) for each in json.loads(done.stdout)["results"]}


def profile(key_values: dict[str, str]) -> str:
    rows = "".join(
        f'  {key}: {{value: "{value}", never_lower: false, why: tried}}\n' for key, value in key_values.items()
    )
    return f"description: tried\nsysctl:\n{rows}"


def fleet_of(cli: Cli, name: str, *shape: str) -> Fleet:
    inventory = cli("lab", "up", "-n", "2", *shape, "--name", name).stdout.strip()
    folder = Path(inventory).parent / "profiles" / "tuning"
    folder.mkdir(parents=True)
    (folder / "big.yml").write_text(profile(WIN))
    (folder / "small.yml").write_text(profile({RMEM: SMALL, WMEM: "4096 16384 212992"}))
    return Fleet(cli, name, inventory)


@pytest.fixture(scope="module")
def uncapped(cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("tune"))})
    yield fleet_of(cli, "uncapped", "--delay", "10ms")
    cli("lab", "down", "--name", "uncapped")


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_wins_and_what_loses(uncapped: Fleet) -> None:
    before = uncapped.values()
    status, document, _ = uncapped.trial("--profiles", "stock,big,small", "--pairs", "5")
    assert (status, document["complete"]) == (0, True), document
    found = {(each["profile"], each["verdict"]) for each in document["trials"]}
    assert found == {("big", "better"), ("small", "worse")}
    assert uncapped.values() == before


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_profile_against_itself_is_noise(uncapped: Fleet) -> None:
    status, document, _ = uncapped.trial("--profiles", "stock,stock", "--pairs", "5")
    assert status == 0
    assert {each["verdict"] for each in document["trials"]} == {"noise"}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_what_won_is_proposed_applied_and_taken_back(uncapped: Fleet, tmp_path: Path) -> None:
    before = uncapped.values()
    _, document, _ = uncapped.trial("--profiles", "own,big", "--pairs", "5")
    won, cli = tmp_path / "won.yml", uncapped.cli
    cli("-i", uncapped.inventory, "tune", "propose", document["id"], "--write", str(won))
    applied = cli("-i", uncapped.inventory, "--output", "json", "tune", "apply", str(won))
    assert set(json.loads(applied.stdout)["hosts"]) == {"node01", "node02"}
    assert uncapped.values(WMEM) == {WIN[WMEM]}
    # the same again changes nothing, and is no run that could be taken back in its place
    cli("-i", uncapped.inventory, "tune", "apply", str(won))
    back = cli("-i", uncapped.inventory, "--output", "json", "tune", "rollback")
    assert json.loads(back.stdout)["hosts"]["node01"]["failed"] == 0
    assert uncapped.values() == before
    # there is nothing more to take back
    assert "no host holds a record" in cli("-i", uncapped.inventory, "tune", "rollback").stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_interrupted_while_it_measures_it_puts_back_at_once(uncapped: Fleet) -> None:
    before = uncapped.values()
    argv = [sys.executable, "-m", "nodectl", "-i", uncapped.inventory, "tune", "trial", "--profiles", "stock,big"]
    argv += ["--probes", "tcp", "--pairs", "5", "--duration", "5", "--yes"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=dict(uncapped.cli.env), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        # A B B A: the third turn follows at once, with the settings on
        while "pair 1 of 5, big" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "ended early: the former values were put back on all hosts\n" in said
    assert uncapped.values() == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_host_that_dies_ends_the_trial_with_what_was_measured(uncapped: Fleet) -> None:
    argv = [sys.executable, "-m", "nodectl", "-i", uncapped.inventory, "--output", "json", "tune", "trial"]
    argv += ["--profiles", "stock,big", "--probes", "tcp", "--pairs", "20", "--duration", "1"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=dict(uncapped.cli.env), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None and process.stdout is not None
        while "pair 6 of 20" not in process.stderr.readline():
            assert process.poll() is None
        uncapped.cli("lab", "fault", "link-down", "node02", "--name", uncapped.name)
        try:
            out, err = process.communicate(timeout=400)
        finally:
            uncapped.cli("lab", "heal", "--name", uncapped.name)
    document = json.loads(out)
    assert not document["complete"], err
    assert document["reason"]
    assert process.returncode in (1, 3)
    assert {each["verdict"] for each in document["trials"]} <= {"better", "unknown"}
    assert all(each["pairs"] >= 4 for each in document["trials"])

"""`nodectl notify`, and commands that tell somebody: what is sent, what is said, and what is wrong in nodectl.toml."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.payload.receiver import Receiver, answers, receiver

SECRET = "s3cr3t-0123456789"  # noqa: S105 - planted
ENV = {"no_proxy": "127.0.0.1"}


@pytest.fixture
def told() -> Iterator[Receiver]:
    with receiver() as server:
        yield server


def fleet(folder: Path, settings: str) -> str:
    (folder / "hosts.yml").write_text("all: {hosts: {node01: {ansible_host: 127.0.0.1, ansible_port: 9}}}\n")
    (folder / "nodectl.toml").write_text(settings)
    (folder / "token").write_text(SECRET)
    (folder / "token").chmod(0o600)
    return str(folder / "hosts.yml")


def entry(url: str, name: str = "desk") -> str:
    return f'[[notify]]\nname = "{name}"\nurl = "{url}"\ntoken_file = "token"\n'


def test_a_test_is_sent_once_to_the_receivers_that_are_named(nodectl: Cli, tmp_path: Path, told: Receiver) -> None:
    inventory = fleet(tmp_path, entry(told.url) + entry(told.url, "other"))
    done = nodectl("-i", inventory, "--output", "json", "notify", "test", "desk", env=ENV)
    (row,) = json.loads(done.stdout)["messages"]
    assert (row["receiver"], row["host"], row["why"]) == ("desk", "", "")
    ((method, _, headers, body),) = told.seen
    assert (method, headers["Authorization"], body["event"]) == ("POST", f"Bearer {SECRET}", "test")
    assert body["fleet"] == "hosts.yml"


def test_what_a_receiver_refuses_is_said_without_its_secrets(nodectl: Cli, tmp_path: Path, told: Receiver) -> None:
    told.misdeeds.append(answers(403))
    done = nodectl("-i", fleet(tmp_path, entry(told.url)), "notify", "test", env=ENV, check=False)
    assert done.returncode == 1 and "403 Forbidden" in done.stdout and SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("command", [("notify", "test"), ("launch", "--dry-run", "x.py")])
def test_what_is_wrong_in_the_settings_ends_the_command(nodectl: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "x.py").write_text("")
    inventory = fleet(tmp_path, '[[notify]]\nname = "desk"\nurl = "https://x"\non = ["job-edn"]\n')
    words = [str(tmp_path / "x.py") if word == "x.py" else word for word in command]
    done = nodectl("-i", inventory, *words, check=False)
    assert done.returncode == 2
    assert "nodectl.toml: receiver 1 (desk) of notify: on.0" in done.stderr, done.stderr


def test_health_tells_a_host_once_and_not_of_a_replay(nodectl: Cli, tmp_path: Path, told: Receiver) -> None:
    state = {**ENV, "XDG_STATE_HOME": str(tmp_path / "state")}
    inventory = fleet(tmp_path, f'[[notify]]\nname = "desk"\nurl = "{told.url}"\n')
    (tmp_path / "hosts.yml").write_text(
        "all: {hosts: {node01: {ansible_connection: local, nodectl_hardware: 8 x rtx4090}}}\n"
    )
    nodectl("-i", inventory, "--replay", "h100-8", "health", env=state, check=False)
    assert told.accepted == []
    for _ in range(2):
        nodectl("-i", inventory, "health", env=state, check=False)
    assert [(body["event"], body["host"]) for body in told.accepted] == [("host-failed", "node01")]
    assert "gpu" in told.accepted[0]["text"]

"""A jump host that the inventory names inline: for the playbooks as for `exec`, with the same keys and known hosts."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodectl.provision.jump import rewritten
from tests.conftest import Cli
from tests.transport.sshd_server import Sshd


def test_without_a_jump_the_words_stay() -> None:
    words = ["-C", "-o", "ControlPersist=60s", "-p", "22", "web1", "sh", "-c", "ssh -J x"]
    assert rewritten(words, _none) == words
    first = ["-o", "ProxyCommand=nc %h %p", "-J", "gate", "web1"]
    assert rewritten(first, _none) == first
    none = ["-o", "ProxyJump=none", "-J", "gate", "web1"]
    assert rewritten(none, _none) == none


def test_a_jump_of_ssh_config_is_one_too_and_gets_what_is_for_safety() -> None:
    words = ["-p", "7", "-l", "me", "-o", "RevokedHostKeys=/r", "-oHostKeyAlias=x", "-F", "/c", "web1"]
    option, value, *rest = rewritten(words, lambda asked: "gate" if list(asked) == words else "")
    assert option == "-o" and rest == words
    command = shlex.split(value.removeprefix("ProxyCommand="))[3:]
    assert command == ["-o", "RevokedHostKeys=/r", "-F", "/c", "-W", "[%h]:%p", "ssh://gate"]


def _none(words: Sequence[str]) -> str:
    return ""


@pytest.mark.parametrize(
    "jump",
    [
        ["-J", "me@gate:7"],
        ["-Jme@gate:7"],
        ["-CJ", "me@gate:7"],
        ["-o", "ProxyJump=me@gate:7"],
        ["-oProxyJump me@gate:7"],
    ],
)
def test_a_jump_is_a_command_with_the_keys_and_known_hosts(jump: list[str]) -> None:
    words = ["-o", "UserKnownHostsFile=/k/my%hosts", *jump, "-i", "/key", "-tt", "web1", "true"]
    option, value, *rest = rewritten(words, _none)
    kept = ["-o", "UserKnownHostsFile=/k/my%hosts", "-i", "/key", "-t", "-t", "web1", "true"]
    assert option == "-o" and [word for word in rest if word != "-C"] == kept
    command = shlex.split(value.removeprefix("ProxyCommand="))[3:]
    assert command == ["-o", "UserKnownHostsFile=/k/my%%hosts", "-i", "/key", "-W", "[%h]:%p", "ssh://me@gate:7"]


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "times"), [("mitogen", 1), ("linear", 1)])
def test_a_playbook_goes_through_it_as_exec_does(
    sshd: Sshd, jump_sshd: Sshd, nodectl: Cli, tmp_path: Path, times: int, strategy: str
) -> None:
    known = tmp_path / "known"
    known.write_text(sshd.known_hosts.read_text() + jump_sshd.known_hosts.read_text())
    gate = ",".join([f"127.0.0.1:{jump_sshd.port}"] * times)
    source = sshd.inventory(tmp_path)
    text = source.read_text().replace(str(sshd.known_hosts), f"{known} -o ProxyJump={gate}")
    source.write_text(text)
    cli = Cli({**nodectl.env, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "NODECTL_STRATEGY": strategy})
    assert cli("-i", str(source), "exec", "--", "true").returncode == 0
    extra = json.dumps({"ansible_become": False, "ansible_python_interpreter": sys.executable})
    done = cli("-i", str(source), "--output", "json", "rollback", "--list", "-e", extra, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    hosts = json.loads(done.stdout)["hosts"]
    assert done.returncode == 0 and hosts["web1"]["unreachable"] == 0 and hosts["web1"]["ok"] == 1, done.stderr

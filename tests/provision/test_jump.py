"""A jump host that the inventory names inline: for the playbooks as for `exec`, with the same keys and known hosts."""

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nodectl.errors import InventoryError
from nodectl.provision.host_keys import proxy_command
from tests.conftest import Cli
from tests.transport.sshd_server import Sshd


@pytest.mark.parametrize(
    "given",
    [["-i", "/key", "-tt"], ["-i/key", "-CJ", "gate"], ["-Ci", "/key", "-o", "ProxyJump=x", "-oPort 7", "-l", "me"]],
)
def test_a_jump_is_a_command_with_the_keys_and_known_hosts(given: list[str]) -> None:
    words = ["-o", "UserKnownHostsFile=/k/my%hosts", "-oHostKeyAlias=x", "-F", "/c", *given, "web1", "true"]
    command = shlex.split(proxy_command("me@gate:7", words, lambda _: ""))
    identity = ["-i", "/key"] if "/key" in given else ["-i/key"]
    passed = ["-o", "UserKnownHostsFile=/k/my%%hosts", "-F", "/c", *identity]
    assert command == ["ssh", *passed, "-W", "[%h]:%p", "ssh://me@gate:7"]


def test_a_jump_host_behind_others_is_reached_by_the_same_rules() -> None:
    def configured(words: Sequence[str]) -> str:
        assert words[:2] == ["-o", "StrictHostKeyChecking=yes"]
        return "outer" if words[-1] == "ssh://first" else ""

    words = ["-o", "StrictHostKeyChecking=yes", "web1"]
    command = proxy_command("first,last", words, configured)
    hosts = []
    while command:
        option, strict, *more = shlex.split(command)[1:]
        assert (option, strict) == ("-o", "StrictHostKeyChecking=yes")
        hosts.append(more[-1])
        command = more[1].partition("=")[2].replace("%%", "%") if more[0] == "-o" else ""
    assert hosts == ["ssh://last", "ssh://first", "ssh://outer"]
    with pytest.raises(InventoryError, match="more than 8 jump hosts"):
        proxy_command("gate", words, lambda _: "gate")


def test_a_playbook_goes_through_it_as_exec_does(sshd: Sshd, jump_sshd: Sshd, nodectl: Cli, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text(sshd.known_hosts.read_text() + jump_sshd.known_hosts.read_text())
    gate = f"127.0.0.1:{jump_sshd.port}"
    source = sshd.inventory(tmp_path)
    text = source.read_text().replace(str(sshd.known_hosts), f"{known} -o ProxyJump={gate}")
    source.write_text(text)
    cli = Cli({**nodectl.env, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    assert cli("-i", str(source), "exec", "--", "true").returncode == 0
    extra = json.dumps({"ansible_become": False, "ansible_python_interpreter": sys.executable})
    done = cli("-i", str(source), "--output", "json", "rollback", "--list", "-e", extra, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    hosts = json.loads(done.stdout)["hosts"]
    assert done.returncode == 0 and hosts["web1"]["unreachable"] == 0 and hosts["web1"]["ok"] == 2, done.stderr

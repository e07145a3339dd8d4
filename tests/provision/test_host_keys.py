"""Playbooks check host keys as `exec` does: by both strategies, whatever options, variables and settings say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.executor.task_executor import TaskExecutor
from ansible.plugins.connection.ssh import Connection

from nodectl.provision import host_keys
from nodectl.provision.host_keys import check_keys, first, why_unchecked
from tests.transport.sshd_server import Sshd

_ROOT = Path(__file__).resolve().parent.parent.parent
_LENIENT = '#!/bin/sh\nexec ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "$@"\n'
# options of ssh by which a key would pass that no file of known hosts has
_OPTIONS = {
    "false": "-o StrictHostKeyChecking=false",
    "quoted": "-o 'StrictHostKeyChecking=\"no\"'",
    "accept-new": "-oStrictHostKeyChecking=accept-new",
    "file": "-F {folder}/config",
    "localhost": "-o NoHostAuthenticationForLocalhost=yes",
    "keys": "-o 'KnownHostsCommand=/bin/cat {known}'",
    "keys-in-file": "-F {folder}/keys",
}
# what is rendered when a task runs, and variables by other names
_VARIABLES: dict[str, dict[str, object]] = {
    "rendered": {"ansible_ssh_extra_args": "{{ '-o KnownHostsCommand=' ~ command }}", "command": "/bin/cat\\ {known}"},
    "switch": {"ansible_host_key_checking": "{{ lookup('env', 'NODECTL_STRATEGY') == '' }}"},
    "program": {"ansible_ssh_executable": "{{ 'LENIENT' | lower | replace('l', '{folder}/l', 1) }}"},
    "paramiko": {"ansible_connection": "{{ 'paramiko' ~ '_ssh' }}", "ansible_paramiko_host_key_checking": False},
}


@pytest.mark.parametrize("strategy", ["mitogen", pytest.param("linear", marks=pytest.mark.slow)])
def test_no_option_lets_a_playbook_in_where_exec_is_refused(
    cli_env: dict[str, str], sshd: Sshd, jump_sshd: Sshd, tmp_path: Path, strategy: str
) -> None:
    """Each door is a host of its own; beside them the host whose key is known, which is reached, by sftp too."""
    (tmp_path / "config").write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n")
    (tmp_path / "keys").write_text(f"Match exec true\n  KnownHostsCommand /bin/cat {sshd.known_hosts}\n")
    (tmp_path / "lenient").write_text(_LENIENT)
    (tmp_path / "lenient").chmod(0o755)
    empty, known = (f"-o UserKnownHostsFile={path}" for path in (tmp_path / "empty", sshd.known_hosts))
    named: dict[str, dict[str, object]] = {
        name: {"ansible_ssh_common_args": f"{door} {empty}"} for name, door in _OPTIONS.items()
    }
    named |= {name: {"ansible_ssh_common_args": empty, **more} for name, more in _VARIABLES.items()}
    text = json.dumps(named).replace("{folder}", str(tmp_path)).replace("{known}", str(sshd.known_hosts))
    hosts = json.loads(text)
    jump = f"-F {tmp_path}/config -CJ 127.0.0.1:{jump_sshd.port}"
    hosts["known"] = {"ansible_ssh_common_args": known}
    hosts["unknown-jump"] = {"ansible_ssh_common_args": f"{jump} {known}"}
    reach = {
        "ansible_host": "127.0.0.1",
        "ansible_port": sshd.port,
        "ansible_ssh_private_key_file": str(sshd.key),
        "ansible_python_interpreter": sys.executable,
    }
    tasks: list[object] = [{"raw": "true"}, {"copy": {"content": "x", "dest": f"{tmp_path}/copied"}}]
    play = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": reach}}))
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"],
        cwd=tmp_path,
        env={
            **cli_env,
            "ANSIBLE_CONFIG": str(_ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(tmp_path / "ansible"),
            "ANSIBLE_SSH_ARGS": "-o StrictHostKeyChecking=no",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "NODECTL_STRATEGY": strategy,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    recap = {line.split()[0]: line for line in done.stdout.splitlines() if " unreachable=" in line}
    assert recap.keys() == hosts.keys(), done.stdout + done.stderr
    assert {name for name, line in recap.items() if "unreachable=0" in line} == {"known"}, done.stdout
    assert "failed=0" in recap["known"] and (tmp_path / "copied").read_text() == "x", done.stdout
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("subsystem", ["ssh", "sftp", "scp"])
def test_ours_stand_before_all_options_of_each_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subsystem: str
) -> None:
    loose = [b"sshpass", b"-d3", subsystem.encode(), b"-o", b"ControlPersist=60s", b"-o", b"ControlPath=/tmp/theirs"]
    monkeypatch.setattr(Connection, "_build_command", lambda *words: [*loose, os.fsencode(words[-1])])
    monkeypatch.setattr(TaskExecutor, "_set_connection_options", TaskExecutor._set_connection_options)
    monkeypatch.setenv("NODECTL_RUN", "r")
    monkeypatch.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", str(tmp_path))
    host_keys._sockets.cache_clear()
    check_keys()
    connection: Any = SimpleNamespace(
        get_option=lambda name: "/jump/ssh",
        host="web1",
        port=22,
        user="me",
        _persistence_controls=lambda built: (True, True),
        _create_control_path=Connection._create_control_path,
    )
    words = [word.decode() for word in Connection._build_command(connection, subsystem, subsystem, "web1")]
    host_keys._sockets.cache_clear()
    assert words[:3] == ["sshpass", "-d3", subsystem]
    ours = [*first(), "-o"]
    assert words[3 : 3 + len(ours)] == ours and "KnownHostsCommand=none" in ours
    socket = words[3 + len(ours)]
    assert socket.startswith(f'ControlPath="{tmp_path}/')
    # the last -S stands, whatever -S the inventory has
    last = socket.split('"')[1] if subsystem == "ssh" else "/jump/ssh"
    assert words[-3:] == ["-S", last, "web1"] and "ControlPath=/tmp/theirs" in words


def test_without_openssh_of_2021_its_option_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=255))
    assert "KnownHostsCommand" not in " ".join(first.__wrapped__())


def test_a_connection_that_shares_nothing_joins_no_socket_of_others() -> None:
    assert host_keys._socket(SimpleNamespace(_persistence_controls=lambda _: (False, True)), []) == "none"


def test_each_play_of_ours_brings_the_strategy_that_checks_keys() -> None:
    for path in (_ROOT / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(path.read_text()):
            assert "hosts" not in play or play["strategy"] == "nodectl.fleet.fleet", path


def _connection(transport: str = "ssh", **programs: str) -> Any:
    return SimpleNamespace(transport=transport, get_option=lambda name: programs.get(name, name.partition("_")[0]))


def test_a_host_is_refused_by_its_connections_final_options() -> None:
    false = {"ansible_host_key_checking": False}
    assert "ansible_host_key_checking is False" in why_unchecked("a", false, _connection())
    assert "mitogen_via is 'b'" in why_unchecked("a", {"mitogen_via": "b"}, _connection())
    for way in ("paramiko", "ansible.netcommon.network_cli", "libssh"):
        assert "set it to ssh" in why_unchecked("a", {}, _connection(way))
    for program in ("ssh", "sftp", "scp"):
        named = _connection(**{f"{program}_executable": "/tmp/lenient"})
        assert f"ansible_{program}_executable is '/tmp/lenient'" in why_unchecked("a", {}, named)
    assert not why_unchecked("a", {}, _connection()) and not why_unchecked("a", {}, _connection("local"))

"""Playbooks check host keys as `exec` does, whatever options, variables and settings say."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from nodectl.errors import InventoryError
from nodectl.provision.host_keys import checked_arguments
from tests.playbooks import ansible_playbook
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
    "socket": "-S {folder}/socket",
    "proxy": "-o 'ProxyCommand=ssh -o StrictHostKeyChecking=no -p {jump} -W %h:%p 127.0.0.1'",
}
# variables of other names, and values that are rendered when a task runs
_VARIABLES: dict[str, dict[str, object]] = {
    "own-arguments": {"ansible_ssh_args": "-o StrictHostKeyChecking=no"},
    "rendered": {"ansible_ssh_extra_args": "{{ '-o KnownHostsCommand=' ~ command }}", "command": "/bin/cat\\ {known}"},
    "switch": {"ansible_host_key_checking": "{{ lookup('env', 'NODECTL_NONE') != '' }}"},
    "program": {"ansible_ssh_executable": "{{ 'LENIENT' | lower | replace('l', '{folder}/l', 1) }}"},
    "paramiko": {"ansible_connection": "{{ 'paramiko' ~ '_ssh' }}", "ansible_paramiko_host_key_checking": False},
    "files": {"ansible_sftp_extra_args": "-S {folder}/lenient"},
}


def _inventory(folder: Path, hosts: Mapping[str, Mapping[str, object]], sshd: Sshd) -> str:
    reach = {
        "ansible_host": "127.0.0.1",
        "ansible_port": sshd.port,
        "ansible_ssh_private_key_file": str(sshd.key),
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": dict(hosts), "vars": reach}}))
    return str(folder / "hosts.yml")


def _play(book: Path, folder: Path, environment: Mapping[str, str], *options: str) -> tuple[dict[str, str], str]:
    """Run plain ansible-playbook where no ansible.cfg of ours lies; each host's line of the recap, and all output."""
    lenient = {"ANSIBLE_SSH_ARGS": "-o StrictHostKeyChecking=no", "ANSIBLE_HOST_KEY_CHECKING": "False"}
    own = {"ANSIBLE_HOME": str(folder / "ansible"), "ANSIBLE_COLLECTIONS_PATH": str(_ROOT)}
    env = {**environment, **own, **lenient}
    done = ansible_playbook("-i", "hosts.yml", *options, str(book), cwd=folder, env=env)
    output = done.stdout + done.stderr
    return {line.split()[0]: line for line in done.stdout.splitlines() if " unreachable=" in line}, output


def test_no_option_lets_a_playbook_in_where_exec_is_refused(
    cli_env: dict[str, str], sshd: Sshd, jump_sshd: Sshd, tmp_path: Path
) -> None:
    """Each door is a host of its own; the host whose key is known is reached, for files too."""
    (tmp_path / "config").write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n")
    (tmp_path / "keys").write_text(f"Match exec true\n  KnownHostsCommand /bin/cat {sshd.known_hosts}\n")
    (tmp_path / "lenient").write_text(_LENIENT)
    (tmp_path / "lenient").chmod(0o755)
    empty, known = (f"-o UserKnownHostsFile={path}" for path in (tmp_path / "empty", sshd.known_hosts))
    named: dict[str, dict[str, object]] = {
        name: {"ansible_ssh_common_args": f"{door} {empty}"} for name, door in _OPTIONS.items()
    }
    named["proxy"] = {"ansible_ssh_common_args": f"{_OPTIONS['proxy']} {known}"}
    named |= {name: {"ansible_ssh_common_args": empty, **more} for name, more in _VARIABLES.items()}
    text = json.dumps(named).replace("{folder}", str(tmp_path)).replace("{known}", str(sshd.known_hosts))
    hosts = json.loads(text.replace("{jump}", str(jump_sshd.port)))
    jump = f"-F {tmp_path}/config -CJ 127.0.0.1:{jump_sshd.port}"
    hosts["known"] = {"ansible_ssh_common_args": known}
    hosts["unknown-jump"] = {"ansible_ssh_common_args": f"{jump} {known}"}
    tasks: list[object] = [
        {"import_tasks": str(_ROOT / "playbooks" / "tasks" / "host_keys.yml")},
        {"raw": "true"},
        {"copy": {"content": "x", "dest": f"{tmp_path}/copied"}},
    ]
    variables = {"ansible_ssh_args": "{{ host_keys.ssh_args }}"}
    play = [{"hosts": "all", "gather_facts": False, "vars": variables, "tasks": tasks}]
    _inventory(tmp_path, hosts, sshd)
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    recap, output = _play(tmp_path / "play.yml", tmp_path, cli_env)
    assert recap.keys() == hosts.keys(), output
    assert {name for name, line in recap.items() if "unreachable=0" in line} == {"known"}, output
    assert "failed=0" in recap["known"] and (tmp_path / "copied").read_text() == "x", output
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize(
    ("options", "localhost", "reason"),
    [
        (("-e", "ansible_ssh_args='-o StrictHostKeyChecking=no'"), {}, "-e ansible_ssh_args replaces"),
        (("-e", "ansible_ssh_common_args='-o StrictHostKeyChecking=no'"), {}, "Host key verification failed"),
        # a task that is delegated to this machine would go to that host
        ((), {"localhost": {"ansible_connection": "ssh"}}, "host localhost: ansible_connection is ssh"),
    ],
)
def test_neither_an_extra_variable_nor_delegation_gets_around_it(
    cli_env: dict[str, str],
    sshd: Sshd,
    tmp_path: Path,
    options: Sequence[str],
    localhost: Mapping[str, Mapping[str, object]],
    reason: str,
) -> None:
    _inventory(tmp_path, {"web1": {}, **localhost}, sshd)
    recap, output = _play(_ROOT / "playbooks" / "runs.yml", tmp_path, cli_env, "-l", "web1", *options)
    assert "unreachable=1" in recap["web1"] and reason in output, output


def test_no_task_connects_before_the_check(cli_env: dict[str, str], sshd: Sshd, tmp_path: Path) -> None:
    _inventory(tmp_path, {"web1": {"ansible_ssh_common_args": f"-o UserKnownHostsFile={sshd.known_hosts}"}}, sshd)
    runs = _ROOT / "playbooks" / "runs.yml"
    recap, output = _play(runs, tmp_path, cli_env, "--start-at-task", "List them")
    assert "failed=1" in recap["web1"] and "'host_keys' is undefined" in output, output
    recap, output = _play(runs, tmp_path, cli_env)
    assert "unreachable=0" in recap["web1"] and "failed=0" in recap["web1"], output


def test_each_play_begins_with_the_check_and_delegates_to_this_machine_alone() -> None:
    for path in (_ROOT / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(path.read_text()):
            if "hosts" in play:
                first = play["tasks"][0]
                assert first["ansible.builtin.import_tasks"] == "tasks/host_keys.yml" and "when" not in first, path
                assert play["vars"]["ansible_ssh_args"] == "{{ host_keys.ssh_args }}", path
                assert play["gather_facts"] is False and "pre_tasks" not in play and "roles" not in play, path
    for folder in ("playbooks", "roles"):
        for path in (_ROOT / folder).rglob("*.yml"):
            lines = path.read_text().splitlines()
            delegated = [number for number, line in enumerate(lines) if "delegate_to:" in line]
            assert all(lines[number].split() == ["delegate_to:", "localhost"] for number in delegated), path
            assert all(lines[number + 1].split() == ["connection:", "local"] for number in delegated), path


def _connection(transport: str = "ssh", **programs: str) -> Any:
    return SimpleNamespace(
        transport=transport,
        get_option=lambda name: programs.get(name, name.partition("_")[0] if name.endswith("executable") else ""),
    )


def test_a_host_is_refused_by_its_connections_final_options() -> None:
    def refused(variables: Mapping[str, object], connection: Any) -> str:
        with pytest.raises(InventoryError) as error:
            checked_arguments("a", variables, connection, "", "/s")
        return f"{error.value.message}; {error.value.remedy}"

    assert "ansible_host_key_checking is False" in refused({"ansible_host_key_checking": False}, _connection())
    for way in ("paramiko", "ansible.netcommon.network_cli", "libssh"):
        assert "set it to ssh" in refused({}, _connection(way))
    for program in ("ssh", "sftp", "scp"):
        named = _connection(**{f"{program}_executable": "/tmp/lenient"})
        assert f"ansible_{program}_executable is '/tmp/lenient'" in refused({}, named)
    assert checked_arguments("a", {}, _connection("local"), "", "/s") == ""


def test_an_openssh_before_2021_is_not_given_an_option_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts: list[str] = []

    def old_ssh(argv: Sequence[str], **_: object) -> Any:
        settings = "stricthostkeychecking true\nverifyhostkeydns false\nproxyjump none\ncontrolpath /s/%h\n"
        return SimpleNamespace(returncode=255 * any("KnownHosts" in word for word in argv), stdout=settings)

    connection = _connection()
    connection.set_option = lambda name, text: texts.append(text)
    connection._build_command = lambda *words: ["sshpass", "-d3", "ssh", *texts[-1].split(), "host"]
    monkeypatch.setattr(subprocess, "run", old_ssh)
    text = checked_arguments("a", {}, connection, "-o ControlPath=/theirs", "/s/%h")
    assert text.startswith("-o StrictHostKeyChecking=yes -o ") and "KnownHostsCommand" not in text
    assert text.index("/s/%%h") < text.index("/theirs") < text.index("ServerAliveInterval")

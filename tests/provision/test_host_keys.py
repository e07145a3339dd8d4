"""Playbooks check host keys as `exec` does: by both strategies, whatever options, variables and settings say."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.plugins.connection.ssh import Connection

from nodectl.errors import UsageError
from nodectl.provision import run
from nodectl.provision.host_keys import check_keys, why_unchecked
from nodectl.provision.jump import FIRST
from tests.transport.sshd_server import Sshd

_ROOT = Path(__file__).resolve().parent.parent.parent
_DOORS = {
    "false": "-o StrictHostKeyChecking=false",
    "quoted": "-o 'StrictHostKeyChecking=\"no\"'",
    "accept-new": "-oStrictHostKeyChecking=accept-new",
    "file": "-F {folder}/config",
    "localhost": "-o NoHostAuthenticationForLocalhost=yes",
}


@pytest.mark.parametrize("strategy", ["linear", "mitogen"])
def test_no_option_lets_a_playbook_in_where_exec_is_refused(
    cli_env: dict[str, str], sshd: Sshd, tmp_path: Path, strategy: str
) -> None:
    """Each door is a host of its own; beside them the host whose key is known, which is reached, by sftp too."""
    (tmp_path / "config").write_text("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n")
    keys = f"-o UserKnownHostsFile={tmp_path}/empty"
    hosts = {
        name: {"ansible_ssh_common_args": f"{door.format(folder=tmp_path)} {keys}"} for name, door in _DOORS.items()
    }
    hosts["known"] = {"ansible_ssh_common_args": f"-o UserKnownHostsFile={sshd.known_hosts}"}
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
    monkeypatch.setattr(Connection, "_build_command", lambda *_: list(loose))
    check_keys()
    monkeypatch.setenv("NODECTL_RUN", "r")
    monkeypatch.setenv("ANSIBLE_SSH_CONTROL_PATH_DIR", str(tmp_path))
    connection: Any = SimpleNamespace(
        get_option=lambda name: "/jump/ssh",
        host="web1",
        port=22,
        user="me",
        _persistence_controls=lambda built: (True, True),
        _create_control_path=Connection._create_control_path,
    )
    words = [word.decode() for word in Connection._build_command(connection, subsystem, subsystem)]
    assert words[:3] == ["sshpass", "-d3", subsystem]
    through = [] if subsystem == "ssh" else ["-S", "/jump/ssh"]
    ours = [*through, *FIRST, "-o"]
    assert words[3 : 3 + len(ours)] == ours
    assert words[3 + len(ours)].startswith(f'ControlPath="{tmp_path}/') and words[-1] == "ControlPath=/tmp/theirs"


def test_no_playbook_of_ours_goes_by_another_strategy() -> None:
    for path in (_ROOT / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(path.read_text()):
            assert play.get("strategy", "nodectl.fleet.fleet") == "nodectl.fleet.fleet", path


def test_a_play_names_the_host_whose_keys_it_was_not_to_check() -> None:
    assert "ansible_host_key_checking is False" in why_unchecked("a", {"ansible_host_key_checking": False}, "ssh")
    assert "set it to ssh" in why_unchecked("a", {}, "ansible.builtin.paramiko_ssh")
    assert why_unchecked("a", {"ansible_ssh_host_key_checking": "{{ strict }}"}, "ssh") == ""


@pytest.mark.parametrize("program", ["ssh", "sftp", "scp"])
def test_another_program_than_openssh_is_refused_by_its_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    monkeypatch.setenv(f"ANSIBLE_{program.upper()}_EXECUTABLE", "/tmp/lenient")
    with pytest.raises(UsageError, match=f"{program}_executable is /tmp/lenient .*env"):
        run._programs(tmp_path, jumps=False)

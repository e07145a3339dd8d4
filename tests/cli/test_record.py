"""`nodectl record` and --replay: what is saved, who is told, and what a replay refuses."""

import json
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest


@pytest.mark.lab
def test_hosts_that_answer_are_saved_and_the_others_told(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    inventory = tmp_path / "more.yml"
    inventory.write_text("all: {hosts: {gone: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    done = nodectl("-i", lab4.inventory, "-i", str(inventory), "record", str(tmp_path / "r"), check=False)
    assert done.returncode == 3
    assert "gone: " in done.stderr
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [*lab4.hosts, "recording.yml"]
    index = json.loads((tmp_path / "r" / "node01" / "index.json").read_text())
    assert {"key", "argv", "exit_status", "duration_s", "time"} <= set(index[0])
    assert {"uname", "ip-address", "dmesg", "nvidia-smi-q", "sysctl", "clock"} <= {row["key"] for row in index}
    live = json.loads(nodectl("-i", lab4.inventory, "facts", "--output", "json").stdout)["hosts"]["node02"]
    replayed = json.loads(nodectl("--replay", str(tmp_path / "r"), "facts", "--output", "json").stdout)
    assert replayed["recorded"] == "r"
    for subject in ("kernel", "cpu", "limits", "lab"):
        assert replayed["hosts"]["node02"][subject] == live[subject]


def test_hosts_of_the_inventory_that_were_not_recorded_are_unreachable(nodectl: Cli, tmp_path: Path) -> None:
    (tmp_path / "r" / "a").mkdir(parents=True)
    (tmp_path / "r" / "a" / "uname.out").write_text("Linux 6.1.0 x86_64\n")
    done = nodectl("-i", "a,b,", "--replay", str(tmp_path / "r"), "facts", "--output", "json", check=False)
    assert done.returncode == 3
    assert "holds no host 'b'" in json.loads(done.stdout)["unreachable"]["b"]


@pytest.mark.parametrize("command", ["exec -- true", "provision"])
def test_commands_that_need_hosts_refuse_a_replay(nodectl: Cli, tmp_path: Path, command: str) -> None:
    done = nodectl("--replay", str(tmp_path), *command.split(), check=False)
    assert done.returncode == 2
    assert "needs the hosts themselves" in done.stderr


def test_a_hostile_recording_is_shown_safely(nodectl: Cli, tmp_path: Path) -> None:
    host = tmp_path / "r" / "$(touch pwned)\x1b[31m"
    host.mkdir(parents=True)
    (host / "uname.out").write_text("\x1b]0;owned\x07 6.1;reboot <script>alert(1)</script>\n")
    (host / "nvidia-smi-q.out").write_bytes(b"\x1b[2J\xff\0" * 1000)
    (host / "lscpu.out").symlink_to("/etc/shadow")
    with (host / "dmesg.out").open("wb") as stream:
        stream.write(b"x" * 20_000_000)
    for arguments in (("facts",), ("facts", "--output", "json"), ("health",), ("record", str(tmp_path / "copy"))):
        done = nodectl("--replay", str(tmp_path / "r"), *arguments, check=False)
        assert done.returncode in (0, 1, 3), done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        assert "root:" not in done.stdout + done.stderr
    assert not list(tmp_path.rglob("pwned"))
    assert [path.name for path in (tmp_path / "copy").iterdir() if path.is_dir()] == ["%24%28touch%20pwned%29%1B%5B31m"]


def test_a_folder_that_is_no_recording_is_left_alone(nodectl: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    done = nodectl("--replay", "dgx-a100", "record", str(tmp_path), check=False)
    assert done.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

"""`nodectl exec` as a process: table, JSON, exit statuses; on this machine and on the lab's hosts."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest


class Nodectl(Protocol):
    """The command line (see tests/conftest.py)."""

    def __call__(self, *args: str, check: bool = ...) -> subprocess.CompletedProcess[str]: ...


class Lab(Protocol):
    """A lab that is up (see tests/conftest.py)."""

    inventory: str
    hosts: tuple[str, ...]

    def ssh(self, host: str, command: str) -> str: ...


@pytest.fixture
def local(tmp_path: Path) -> str:
    """Three names for this machine, and one for nobody."""
    path = tmp_path / "hosts"
    path.write_text(
        "[here]\ngpu[01:03] ansible_connection=local\n[dead]\nzz ansible_host=127.0.0.1 ansible_port=1 ansible_user=x\n"
    )
    return str(path)


def test_json(nodectl: Nodectl, local: str) -> None:
    done = nodectl(
        "-i", local, "--output", "json", "exec", "--", "sh", "-c", "echo out; echo err >&2; exit 4", check=False
    )
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"]) == (1, "nodectl.exec/1")
    first, *_, last = document["results"]
    assert (first["host"], first["outcome"], first["exit_status"]) == ("gpu01", "ran", 4)
    assert (first["stdout"], first["stderr"], first["duration_s"] > 0) == ("out\n", "err\n", True)
    assert (last["host"], last["outcome"], last["exit_status"]) == ("zz", "unreachable", None)


def test_output_that_is_cut_is_noted_and_marked(nodectl: Nodectl, local: str) -> None:
    argv = ("-i", local, "-l", "gpu01", "--output", "json", "exec", "--", "head", "-c")
    cut = nodectl(*argv, "17000000", "/dev/zero")
    assert "gpu01: the output was cut after 16 MiB" in cut.stderr and json.loads(cut.stdout)["results"][0]["cut"]
    assert not json.loads(nodectl(*argv, "1", "/dev/zero").stdout)["results"][0]["cut"]


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (["-l", "here", "exec", "--", "true"], 0),
        (["-l", "here", "exec", "--", "false"], 1),
        (["exec", "--", "true"], 3),
        (["exec", "--", "false"], 1),
        (["-l", "here", "exec", "--timeout", "0.3", "--", "sleep", "30"], 3),
        (["-l", "here", "exec", "--", "echo two words"], 1),
        (["-l", "here", "exec", "--", "ls", "--timeout", "x"], 1),
    ],
)
def test_exit_status(nodectl: Nodectl, local: str, args: list[str], status: int) -> None:
    assert nodectl("-i", local, *args, check=False).returncode == status


@pytest.mark.lab
def test_a_cut_link_costs_one_line_and_its_deadline(nodectl: Nodectl, lab4: Lab) -> None:
    cut, *others = lab4.hosts
    name = ["--name", Path(lab4.inventory).parent.name]
    nodectl("lab", "fault", *name, "link-down", cut)
    try:
        started = time.monotonic()
        done = nodectl("-i", lab4.inventory, "--output", "json", "exec", "--", "true", check=False)
        assert time.monotonic() - started < 60
        outcomes = {each["host"]: each["outcome"] for each in json.loads(done.stdout)["results"]}
        assert outcomes == {cut: "unreachable", **dict.fromkeys(others, "ran")}
        assert done.returncode == 3
    finally:
        nodectl("lab", "heal", *name)


@pytest.mark.lab
def test_killed_nodectl_leaves_nothing_on_the_hosts(lab4: Lab, cli_env: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "nodectl", "-i", lab4.inventory, "exec", "--", "sleep", "98765"]
    process = subprocess.Popen(command, env=dict(cli_env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    look = "ps -eo args | grep -c '[s]leep 98765'"
    deadline = time.monotonic() + 90
    while any(lab4.ssh(host, look) == "0" for host in lab4.hosts):
        assert time.monotonic() < deadline, "the command did not start"
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 30
    while any(lab4.ssh(host, look) != "0" for host in lab4.hosts):
        assert time.monotonic() < deadline, "the command is still running"


def test_what_nodectl_starts_hears_signals_to_which_nodectl_was_started_deaf(local: str, tmp_path: Path) -> None:
    def deaf() -> None:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    argv = [sys.executable, "-m", "nodectl", "-i", local, "-l", "gpu01", "--output", "json"]
    done = subprocess.run(
        [*argv, "exec", "--", "grep", "SigIgn", "/proc/self/status"],
        preexec_fn=deaf,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    ignored = int(json.loads(done.stdout)["results"][0]["stdout"].split()[1], 16)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        assert not ignored & 1 << (number - 1), signal.strsignal(number)

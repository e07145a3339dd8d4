"""The launch script, run as a person would: its arguments to torchrun, and NCCL's files read as NCCL reads them."""

import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.roles.rendering import render

FAKE = """#!/usr/bin/env python3
import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ)}))
"""


class Launcher:
    """The rendered script with a torchrun that only tells how it was called."""

    def __init__(self, folder: Path) -> None:
        self.home, venv = folder / "home", folder / "venv"
        (venv / "bin").mkdir(parents=True)
        self.home.mkdir()
        (venv / "bin" / "torchrun").write_text(FAKE)
        (venv / "bin" / "torchrun").chmod(0o755)
        self.script = folder / "nodectl-launch"
        self.script.write_text(render("launch.sh.j2", profiles="p", venv=str(venv)))

    def __call__(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        clean = {"PATH": os.environ["PATH"], "HOME": str(self.home), **env}
        return subprocess.run(
            ["bash", str(self.script), *args], env=clean, capture_output=True, text=True, check=False, timeout=60
        )

    def called(self, *args: str, **env: str) -> tuple[list[str], dict[str, str]]:
        done = self(*args, **env)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return answer["argv"], answer["env"]

    def shown(self, **env: str) -> list[str]:
        done = self("--print-env", **env)
        assert done.returncode == 0 and done.stdout == ""
        return [line.strip() for line in done.stderr.splitlines()[1:]]


@pytest.fixture
def launch(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path)


def test_one_node_needs_nothing_but_a_script(launch: Launcher) -> None:
    argv, env = launch.called("--nproc-per-node", "1", "--", "train.py", "--lr", "1e-3", "two words", "--", "$(id)")
    assert argv[-6:] == ["train.py", "--lr", "1e-3", "two words", "--", "$(id)"]
    assert argv[argv.index("--local-addr") + 1] == "127.0.0.1" and argv[argv.index("--max-restarts") + 1] == "0"
    assert int(env["OMP_NUM_THREADS"]) == len(os.sched_getaffinity(0))
    assert not {name for name in env if name.startswith("NCCL_") or name.endswith("_IFNAME")}


def test_a_node_of_several(launch: Launcher, tmp_path: Path) -> None:
    logs = tmp_path / "logs dir"
    argv, env = launch.called(
        *("--nnodes", "4", "--node-rank=3", "--nproc-per-node", "8", "--master-addr", "10.0.0.1"),
        *("--master-port", "29999", "--local-addr", "10.0.0.4", "--interface", "eth0", "--log-dir", str(logs)),
        *("--job-id", "j-1", "--", "-odd.py"),
        OMP_NUM_THREADS="3",
    )
    pairs = dict(pairwise(argv))
    wanted = {"--nnodes": "4", "--node-rank": "3", "--nproc-per-node": "8", "--master-addr": "10.0.0.1"}
    wanted |= {"--master-port": "29999", "--local-addr": "10.0.0.4", "--rdzv-backend": "static", "--rdzv-id": "j-1"}
    wanted |= {"--log-dir": str(logs), "--redirects": "3", "--tee": "3"}
    assert wanted.items() <= pairs.items() and logs.is_dir() and argv[-1] == "./-odd.py"
    assert env["OMP_NUM_THREADS"] == "3" and env["NODECTL_JOB_ID"] == "j-1"
    assert env["GLOO_SOCKET_IFNAME"] == env["TP_SOCKET_IFNAME"] == "eth0" and env["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_the_interface_does_not_overrule_what_nccl_reads(launch: Launcher) -> None:
    (launch.home / ".nccl.conf").write_text("NCCL_SOCKET_IFNAME==ib0\n")
    _, env = launch.called("--interface", "eth0", "--", "t.py", GLOO_SOCKET_IFNAME="eth7")
    assert "NCCL_SOCKET_IFNAME" not in env and env["GLOO_SOCKET_IFNAME"] == "eth7"


def test_files_are_read_as_nccl_reads_them(launch: Launcher, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (launch.home / ".nccl.conf").write_text(
        "# comment\n #NCCL_A=1\nNCCL_ALGO=ring,tree;allreduce:tree\nNCCL_DEBUG = WARN\nNCCL_NET=1 # why\n"
        f"NCCL_X=$(touch {mark})\nNCCL_Y=`touch {mark}`\nNCCL_ALGO=second\nNCCL_E=\nno value\n=x\n"
        f"NCCL_a[$(touch {mark})]=1\nNCCL_IB_HCA==mlx5_0\r\nNCCL_ESC=\x1b[31mred\nNCCL_LAST=unended"
    )
    shown = launch.shown()
    home = f"[{launch.home}/.nccl.conf]"
    assert not mark.exists()
    for line in (
        "NCCL_ALGO=ring,tree;allreduce:tree",
        "NCCL_DEBUG = WARN",
        "NCCL_NET=1 # why",
        f"NCCL_X=$(touch {mark})",
        "NCCL_E=",
        "NCCL_IB_HCA==mlx5_0?",
        "NCCL_ESC=?[31mred",
        "NCCL_LAST=unended",
    ):
        assert f"{line}  {home}" in shown
    assert not [line for line in shown if "second" in line or line.startswith(("no value", "="))]


def test_the_first_writer_wins(launch: Launcher, tmp_path: Path) -> None:
    (launch.home / ".nccl.conf").write_text("NCCL_DEBUG=WARN\nNCCL_NET=Socket\n")
    job = tmp_path / "job.conf"
    job.write_text("NCCL_DEBUG=TRACE\nNCCL_BUFFSIZE=1\n")
    home = f"[{launch.home}/.nccl.conf]"
    assert launch.shown(NCCL_DEBUG="INFO") == ["NCCL_DEBUG=INFO  [environment]", f"NCCL_NET=Socket  {home}"]
    shown = launch.shown(NCCL_CONF_FILE=str(job), NCCL_DEBUG="")
    assert f"NCCL_BUFFSIZE=1  [{job}]" in shown and "NCCL_DEBUG=  [environment]" in shown
    assert not [line for line in shown if "NCCL_NET" in line], "with NCCL_CONF_FILE, ~/.nccl.conf is not read"


def test_nothing_set_is_said(launch: Launcher) -> None:
    assert "none set" in launch("--print-env").stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "which script"),
        (("--nnodes", "two", "--", "t.py"), "--nnodes takes a whole number from 1, not 'two'"),
        (("--nnodes",), "--nnodes needs a value"),
        (("--nonode", "1"), "unknown option '--nonode'"),
        (("--nnodes", "2", "--node-rank", "2", "--", "t.py"), "the ranks are 0 to 1"),
        (("--venv", "/nonexistent", "--", "t.py"), "no torchrun in /nonexistent"),
        (("--master-port", "a[$(touch /tmp/x)]", "--", "t.py"), "takes a whole number"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(launch: Launcher, args: tuple[str, ...], words: str) -> None:
    done = launch(*args)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1] and done.stdout == ""


def test_help_says_how(launch: Launcher) -> None:
    done = launch("--help")
    assert done.returncode == 0 and "--node-rank I" in done.stdout and "$NCCL_CONF_FILE" in done.stdout


def test_ranks_are_bound_to_torchrun_where_the_supervisor_asks_for_it(launch: Launcher) -> None:
    assert "PYTHON_EXEC" not in launch.called("--", "train.py")[1]
    _, env = launch.called("--", "train.py", NODECTL_WITH_LAUNCHER="/with")
    assert (env["PYTHON_EXEC"], env["NODECTL_PYTHON"]) == ("/with", str(launch.script.parent / "venv/bin/python"))
    assert (
        launch.called("--", "train.py", NODECTL_WITH_LAUNCHER="/with", PYTHON_EXEC="/own")[1]["PYTHON_EXEC"] == "/own"
    )

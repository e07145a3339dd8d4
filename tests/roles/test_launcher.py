"""The launch script, run as a person would: its arguments to torchrun, and NCCL's files read as NCCL reads them."""

import base64
import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from nodectl.jobs.export import render
from nodectl.payload.jobs import outputs

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


def test_who_follows_the_ranks_files_gets_no_second_copy(launch: Launcher, tmp_path: Path) -> None:
    arguments = ("--log-dir", str(tmp_path / "logs"), "--nproc-per-node", "1", "--", "t.py")
    argv, env = launch.called(*arguments, NODECTL_ONE_COPY="1")
    assert argv[argv.index("--redirects") + 1] == "3" and "--tee" not in argv
    assert (tmp_path / "logs" / "only-copy").exists() and "NODECTL_ONE_COPY" not in env


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
    getent = launch.home / "getent"
    getent.write_text(f"#!/bin/sh\necho me:x:1000:1000::{launch.home}:/bin/sh\n")
    getent.chmod(0o755)
    path = f"{launch.home}:{os.environ['PATH']}"
    assert launch.shown(NCCL_DEBUG="INFO", HOME="", PATH=path)[1] == f"NCCL_NET=Socket  {home}", (
        "a start file took HOME"
    )
    shown = launch.shown(NCCL_CONF_FILE=str(job), NCCL_DEBUG="")
    assert f"NCCL_BUFFSIZE=1  [{job}]" in shown and "NCCL_DEBUG=  [environment]" in shown
    assert not [line for line in shown if "NCCL_NET" in line], "with NCCL_CONF_FILE, ~/.nccl.conf is not read"


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
        (("--engine", "mpirun", "--", "x"), "--engine takes torchrun, deepspeed, accelerate or command"),
        (("--engine", "command", "--", "no-such-program"), "there is no program 'no-such-program'"),
        (("--engine", "accelerate", "--", "t.py"), "no accelerate in"),
        (("--module", "maybe", "--", "t"), "--module takes yes or no"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(launch: Launcher, args: tuple[str, ...], words: str) -> None:
    done = launch(*args)
    assert done.returncode == 2 and words in done.stderr.splitlines()[-1] and done.stdout == ""


def test_ranks_are_bound_to_torchrun_where_the_supervisor_asks_for_it(launch: Launcher) -> None:
    assert "PYTHON_EXEC" not in launch.called("--", "train.py")[1]
    _, env = launch.called("--", "train.py", NODECTL_WITH_LAUNCHER="/with")
    assert (env["PYTHON_EXEC"], env["NODECTL_PYTHON"]) == ("/with", str(launch.script.parent / "venv/bin/python"))
    assert (
        launch.called("--", "train.py", NODECTL_WITH_LAUNCHER="/with", PYTHON_EXEC="/own")[1]["PYTHON_EXEC"] == "/own"
    )


def other(launch: Launcher, name: str) -> None:
    """The environment has another program, which tells how it was called."""
    place = launch.script.parent / "venv/bin" / name
    place.write_text(FAKE)
    place.chmod(0o755)


NODE = (
    *("--nnodes", "2", "--node-rank", "1", "--nproc-per-node", "2", "--master-addr", "10.0.0.1"),
    *("--master-port", "29999", "--local-addr", "10.0.0.2", "--job-id", "j-1"),
)
WORDS = ["train.py", "two words", "$(touch /pwned)", "--", ""]


def test_a_module_is_started_by_torchrun(launch: Launcher) -> None:
    argv, env = launch.called("--module", "yes", "--", "pkg.train", "-x")
    assert argv[-3:] == ["--module", "pkg.train", "-x"]
    assert env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert launch.called("--", "t.py", CUDA_DEVICE_ORDER="FASTEST_FIRST")[1]["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"
    assert "is no name of a module" in launch("--module", "yes", "--", "-x").stderr


def test_deepspeed_is_started_as_its_own_launcher_starts_a_node(launch: Launcher) -> None:
    other(launch, "python")
    argv, env = launch.called("--engine", "deepspeed", *NODE, "--", "--bind_cores_to_rank", *WORDS)
    assert argv[:3] == ["-u", "-m", "deepspeed.launcher.launch"] and argv[-6:] == ["--bind_cores_to_rank", *WORDS]
    assert argv[4:7] == ["--node_rank=1", "--master_addr=10.0.0.1", "--master_port=29999"]
    world = json.loads(base64.urlsafe_b64decode(argv[3].removeprefix("--world_info=")))
    assert world == {"node0": [0, 1], "node1": [0, 1]} and env["NODECTL_JOB_ID"] == "j-1"
    assert not any(word.startswith("--enable_each_rank_log") for word in argv)
    argv, _ = launch.called("--engine", "deepspeed", *NODE, "--", "t.py", CUDA_VISIBLE_DEVICES="6,7")
    world = json.loads(base64.urlsafe_b64decode(argv[3].removeprefix("--world_info=")))
    assert world == {"node0": [0, 1], "node1": [6, 7]}


def test_accelerate_is_told_what_torchrun_is(launch: Launcher, tmp_path: Path) -> None:
    other(launch, "accelerate")
    logs = tmp_path / "logs"
    argv, env = launch.called("--engine", "accelerate", *NODE, "--log-dir", str(logs), "--", *WORDS)
    assert argv[0] == "launch" and argv[-5:] == WORDS and "--multi_gpu" in argv and "--same_network" in argv
    wanted = {"--num_machines": "2", "--machine_rank": "1", "--num_processes": "4", "--main_process_ip": "10.0.0.1"}
    wanted |= {"--main_process_port": "29999", "--deepspeed_multinode_launcher": "standard", "--log_dir": str(logs)}
    assert wanted.items() <= dict(pairwise(argv)).items()
    assert (env["PET_LOCAL_ADDR"], env["PET_RDZV_ID"], env["PET_REDIRECTS"]) == ("10.0.0.2", "j-1", "3")
    for own in ("--use_deepspeed", "--use-fsdp", "--config_file=x.yaml"):
        assert "--multi_gpu" not in launch.called("--engine", "accelerate", *NODE, "--", own, "t.py")[0]
    assert "--multi_gpu" not in launch.called("--engine", "accelerate", "--nproc-per-node", "1", "--", "t.py")[0]


@pytest.mark.parametrize("engine", ["accelerate", "deepspeed"])
def test_another_engines_output_is_kept_once_and_by_rank(launch: Launcher, tmp_path: Path, engine: str) -> None:
    other(launch, "python" if engine == "deepspeed" else engine)
    logs = tmp_path / "logs"
    argv, env = launch.called("--engine", engine, *NODE, "--log-dir", str(logs), "--", *WORDS, NODECTL_ONE_COPY="1")
    assert (logs / "only-copy").exists() and "NODECTL_ONE_COPY" not in env and "--tee" not in argv
    if engine == "accelerate":
        assert env["PET_REDIRECTS"] == "3" and argv[argv.index("--log_dir") + 1] == str(logs)
        return
    (folder,) = [word.partition("=")[2] for word in argv if word.startswith("--enable_each_rank_log=")]
    assert [outputs.local_rank(f"{folder}/20261123080000_rank{rank}.log") for rank in (2, 3)] == [0, 1]


TELL = "import os, sys; print([os.environ[n] for n in sys.argv[1].split()], sys.argv[2:])"
NAMES = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK NNODES MASTER_ADDR MASTER_PORT"


def test_a_command_runs_once_a_rank(launch: Launcher, tmp_path: Path) -> None:
    done = launch(
        "--engine", "command", *NODE, "--log-dir", str(tmp_path / "l"), "--", sys.executable, "-c", TELL, NAMES, *WORDS
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[default{n}]:{[str(2 + n), str(n), '4', '2', '1', '2', '10.0.0.1', '29999']} {WORDS}" for n in (0, 1)
    ]
    assert [path.name for path in (tmp_path / "l").iterdir()] == ["attempt_0"]
    assert (tmp_path / "l/attempt_0/1/stderr.log").read_text().startswith("['3', '1'")
    once = launch(
        *("--engine", "command", *NODE, "--log-dir", str(tmp_path / "o")),
        *("--", sys.executable, "-c", TELL, "RANK"),
        NODECTL_ONE_COPY="1",
    )
    assert once.stdout == "" and (tmp_path / "o/attempt_0/0/stdout.log").read_text() == "['2'] []\n"
    assert (tmp_path / "o/only-copy").exists()
    alone = launch(
        "--engine", "command", "--", sys.executable, "-c", TELL, "RANK WORLD_SIZE", CUDA_VISIBLE_DEVICES="0,1"
    )
    assert alone.stdout == "[default0]:['0', '1'] []\n", "once a node, whatever GPUs there are"


@pytest.mark.parametrize(("end", "code", "status"), [("sys.exit(3)", 3, 3), ("os.kill(os.getpid(), 9)", -9, 137)])
def test_the_first_rank_that_fails_ends_the_others(launch: Launcher, end: str, code: int, status: int) -> None:
    script = f"import os, sys, time; {end} if os.environ['RANK'] == '1' else time.sleep(100)"
    started = time.monotonic()
    done = launch("--engine", "command", "--nproc-per-node", "3", "--", sys.executable, "-c", script)
    assert done.returncode == status and time.monotonic() - started < 50
    assert done.stderr.splitlines()[-3].startswith(f"failed (exitcode: {code}) local_rank: 1 (pid: ")


def test_an_environment_of_conda_is_activated(launch: Launcher) -> None:
    venv = launch.script.parent / "venv"
    (venv / "etc/conda/activate.d").mkdir(parents=True)
    (venv / "etc/conda/activate.d/x.sh").write_text('export FROM_HOOK="$CONDA_PREFIX"\nfalse\n')
    (venv / "conda-meta").mkdir()
    _, env = launch.called("--venv", str(venv), "--", "t.py")
    assert env["FROM_HOOK"] == env["CONDA_PREFIX"] == str(venv) and f"{venv}/bin:" in env["PATH"]


def test_node_0_of_several_leaves_after_the_others(launch: Launcher, tmp_path: Path) -> None:
    server = tmp_path / "torch/distributed/elastic/agent/server"
    server.mkdir(parents=True)
    (tmp_path / "torch/__init__.py").touch()
    (server / "__init__.py").write_text("from . import api")
    (server / "api.py").write_text("class SimpleElasticAgent:\n    def _exit_barrier(self): print('barrier')\n")
    (tmp_path / "torch/distributed/run.py").write_text(
        "import sys\n"
        "from torch.distributed.elastic.agent.server import api\n"
        "class Store:\n"
        "    asked = 0\n"
        "    def add(self, key, amount):\n"
        "        self.asked += 1\n"
        "        print('add', amount)\n"
        "        return min(self.asked // 2, 2)  # the others leave while node 0 asks\n"
        "def main():\n"
        "    agent = api.SimpleElasticAgent()\n"
        "    agent._store = Store()\n"
        "    agent._exit_barrier()\n"
        "    print(sys.argv[0], sys.argv[-1])\n"
    )
    (launch.home.parent / "venv/bin/python").symlink_to(sys.executable)
    several = ("--nnodes", "3", "--nproc-per-node", "1", "--node-rank")
    first = launch(*several, "0", "--", "train.py", PYTHONPATH=str(tmp_path))
    assert first.stdout.split("\n") == ["barrier", *["add 0"] * 4, "torchrun train.py", ""], first.stderr
    second = launch(*several, "1", "--", "train.py", PYTHONPATH=str(tmp_path))
    assert second.stdout.split("\n") == ["barrier", "add 1", "torchrun train.py", ""], second.stderr

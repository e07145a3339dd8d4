"""The operator's own way to start, over two lab hosts with a real torchrun: module, folder of the hosts, command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.export import render
from tests.conftest import LabUnderTest
from tests.jobs.deaths import Lab
from tests.torch_venv import torch_venv
from tests.training_venv import training_venv

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LAUNCHER = "/usr/local/bin/way-launcher"
_VENV = "/opt/ways/venv"
_TRAINING = "/opt/ways/training"
_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_PROGRAMS = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}
GATHER = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(os.environ["RANK"])])
dist.all_reduce(total)
os.write(1, f"sum {int(total)} of {dist.get_world_size()} in {os.getcwd()} with {sys.argv[1:]}\\n".encode())
dist.destroy_process_group()
"""


class Shell(Lab):
    """Launches by a launch script with torch."""

    def launch(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.run("launch", "-e", f"launcher_path={_LAUNCHER}", *args)

    def everywhere(self, command: str) -> None:
        for host in self.lab.hosts:
            self.lab.ssh(host, command)


@pytest.fixture(scope="module")
def lab(lab4: LabUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabUnderTest]:
    part, text = lab4.part(2, tmp_path_factory.mktemp("ways")), render("launch.sh.j2", profiles="lab", venv=_VENV)
    for host in part.hosts:
        part.ssh(host, f"printf %s {shlex.quote(text)} > {_LAUNCHER} && chmod 755 {_LAUNCHER}")
    yield part
    for host in part.hosts:
        part.ssh(host, f"rm -rf {_LAUNCHER} {Path(_VENV).parent}")


@pytest.fixture
def idle(lab: LabUnderTest, nodectl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """In the folder of a project; for what starts nothing."""
    for place, text in {"pyproject.toml": "", "src/own/__init__.py": "", "src/own/train.py": GATHER}.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return Shell(lab, nodectl, tmp_path)


@pytest.fixture(scope="module")
def jobs(lab: LabUnderTest, nodectl: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Those of all tests go together."""
    yield
    made = Shell(lab, nodectl, tmp_path_factory.mktemp("end"))
    made.run("jobs", "stop", "last")
    made.run("jobs", "clean")


@pytest.fixture
def shell(idle: Shell, jobs: None) -> Shell:
    return idle


@pytest.fixture
def torch(shell: Shell) -> str:
    """Where the hosts' torch lies."""
    if Path(torch_venv()).parent.name != "lab-share":
        pytest.skip("the lab's share holds no environment with torch")
    shell.everywhere(_make_venv(_VENV, "venv"))
    return _VENV


@pytest.fixture
def training(shell: Shell) -> str:
    """The same, with DeepSpeed, Transformers and Accelerate."""
    training_venv()
    shell.everywhere(_make_venv(_TRAINING, "training"))
    return _TRAINING


def _make_venv(folder: str, share: str) -> str:
    """An environment as the pytorch role makes it, over the packages that the lab's share holds."""
    made = [f"mkdir -p {folder}/bin", f"cp /srv/nodectl/{share}/pyvenv.cfg {folder}"]
    made += [f"ln -sfn /srv/nodectl/{share}/lib {folder}/lib"]
    made += [f"ln -sf $(readlink -f /srv/nodectl/{share}/bin/python) {folder}/bin/python"]
    for name, module in _PROGRAMS.items():
        program = f"#!{folder}/bin/python\nfrom {module} import main\nmain()\n"
        made += [f"printf %s {shlex.quote(program)} > {folder}/bin/{name}", f"chmod 755 {folder}/bin/{name}"]
    return " && ".join(made)


WORDS = ("a b", "$(touch /pwned)", "it's", "--x")


def test_a_module_of_the_project_meets_over_torchrun(shell: Shell, torch: str) -> None:
    done = shell.launch("--venv", torch, "--nproc-per-node", "1", "-m", "own.train", "--", *WORDS)
    assert done.returncode == 0, done.stderr + done.stdout
    for host in shell.lab.hosts:
        assert f"{host} | [0] sum 1 of 2 in " in done.stdout and f"/code with {list(WORDS)}\n" in done.stdout
    assert shell.job("last")["state"] == "finished"


def test_code_that_the_hosts_have_is_not_copied_and_must_be_on_all(shell: Shell, torch: str) -> None:
    script = shlex.quote(GATHER)
    shell.everywhere(f"mkdir -p '/srv/my project/sub' /data && printf %s {script} > '/srv/my project/sub/train.py'")
    argv = ("--venv", torch, "--nproc-per-node", "1", "--chdir", "/srv/my project", "--need", "/data", "sub/train.py")
    last = shell.lab.hosts[-1]
    try:
        done = shell.launch(*argv, "--", *WORDS)
        assert done.returncode == 0, done.stderr + done.stdout
        assert done.stdout.count(f"sum 1 of 2 in /srv/my project with {list(WORDS)}\n") == 2
        assert "code: nothing is copied" in done.stderr
        job = shell.job("last")["id"]
        assert shell.lab.ssh(last, f"ls -A ~/.local/state/nodectl/jobs/{job}/code") == ""
        shell.lab.ssh(last, "rm -r /data '/srv/my project/sub'")
        gone = shell.launch(*argv)
        assert gone.returncode == 1 and "launching" not in gone.stderr
        for path in ("/data", "/srv/my project/sub/train.py"):
            assert f"FAILED  {last}  launch_paths: {path}: No such file or directory" in gone.stderr
        skipped = shell.launch("--dry-run", "--skip", "paths", *argv)
        assert skipped.returncode == 0, skipped.stderr
        line = f"skipped     launch_paths: failed on {last}: /data: No such file or directory"
        assert line in skipped.stdout and "skipped: launch_paths: failed" in skipped.stderr
    finally:
        shell.everywhere("rm -rf '/srv/my project' /data")


def test_a_command_runs_once_a_rank_and_its_first_failure_ends_the_job(shell: Shell) -> None:
    text = 'printf "%s\\n" "rank $RANK of $WORLD_SIZE, $LOCAL_RANK on $NODE_RANK, to $MASTER_ADDR: $*"'
    argv = ("--engine", "command", "--venv", "", "--nproc-per-node", "2")
    done = shell.launch(*argv, "--", "sh", "-c", text, "sh", *WORDS)
    assert done.returncode == 0, done.stderr + done.stdout
    first = shell.lab.status["hosts"][0]["address"]
    for rank in range(4):
        line = f"rank {rank} of 4, {rank % 2} on {rank // 2}, to {first}: {' '.join(WORDS)}\n"
        assert f"{shell.lab.hosts[rank // 2]} | [{rank % 2}] {line}" in done.stdout
    dies = 'echo up; if [ "$RANK" = 3 ]; then sleep 2; echo "no such data" >&2; exit 7; fi; exec sleep 1000'
    started = time.monotonic()
    failed = shell.launch(*argv, "--", "sh", "-c", dies)
    assert failed.returncode == 1 and time.monotonic() - started < 100
    cause = shell.job("last")["first_failure"]
    assert (cause["host"], cause["rank"], cause["exit_status"]) == (shell.lab.hosts[1], 3, 7), failed.stderr
    assert "sleep 1000" not in "".join(shell.lab.ssh(host, "ps -e -o args") for host in shell.lab.hosts)


# what docs/workloads.md tells of an operator's own training script, with the projects that it names


def stand_in(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a copy of an example, as somebody who has it for a project."""
    shutil.copytree(_EXAMPLES / name, folder / name)
    monkeypatch.chdir(folder / name)


def losses(text: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"loss'?:? '?(\d+\.\d+)", text)]


def test_a_hugging_face_trainer(shell: Shell, training: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("hugging-face", tmp_path, monkeypatch)
    argv = ("--venv", training, "--nproc-per-node", "1", "--checkpoint", "/ways", "train.py", "--", "--use_cpu")
    course = ("--max_steps", "8", "--save_steps", "4", "--logging_steps", "1", "--learning_rate", "1e-3")
    done = shell.launch(*argv, *course, "--report_to", "none")
    assert done.returncode == 0, done.stderr + done.stdout
    told = losses(done.stdout)
    assert told[7] < told[0] - 0.3
    assert "checkpoint-8" in shell.lab.ssh(shell.lab.hosts[0], "ls /ways")
    shell.everywhere("rm -rf /ways")


@pytest.mark.timeout(900)  # four launches
def test_one_workload_has_the_same_losses_under_every_engine(shell: Shell, training: str) -> None:
    small = ("--d-model=32", "--layers=2", "--heads=4", "--seq=8", "--batch=4", "--samples=64", "--steps=6")
    told = {}
    for engine in ("torchrun", "deepspeed", "accelerate", "command"):
        argv = (
            "--venv",
            training,
            "--nproc-per-node",
            "1",
            "--engine",
            engine,
            "--",
            "workload:transformer",
            "--device=cpu",
        )
        done = shell.launch(*argv, *small)
        assert done.returncode == 0, done.stderr + done.stdout
        summary = json.loads(re.findall(r"\[0\] (\{.*\})", done.stdout)[-1])
        told[engine] = (summary["first_loss"], summary["last_loss"], summary["hosts"])
    assert len(set(map(str, told.values()))) == 1 and told["command"][2] == list(shell.lab.hosts)

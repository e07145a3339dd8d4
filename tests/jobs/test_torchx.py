"""`torchx run -s nodectl`, by the real torchx in an environment of its own, over lab hosts."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.export.templates import render
from tests.conftest import Cli, LabUnderTest

_ROOT = Path(__file__).resolve().parents[2]
_TORCHX = "torchx==0.7.0"
_LAUNCHER = "/usr/local/bin/torchx-test-launch"

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def torchx(nodectl: Cli) -> Path:
    """The torchx program, beside which this checkout's nodectl is installed; made once below the cache folder."""
    name = hashlib.sha256(f"{_TORCHX} {sys.version} {sys.prefix}".encode()).hexdigest()[:12]
    folder = Path(nodectl.env["XDG_CACHE_HOME"]) / "nodectl" / f"torchx-{name}"
    program = folder / "bin" / "torchx"
    if program.exists():
        return program
    uv = Path(sys.executable).with_name("uv")
    shutil.rmtree(folder, ignore_errors=True)
    made = subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=False)
    argv = [str(uv), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), _TORCHX]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if made.returncode or done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"no torchx here: {done.stderr.strip()[-300:]}")
    packages = next(folder.glob("lib/python3*/site-packages"))
    (packages / "nodectl-of-this-checkout.pth").write_text(f"{_ROOT}\n{sysconfig.get_path('purelib')}\n")
    return program


class TorchX:
    """A shell in the folder of an app, with the lab as inventory."""

    def __init__(self, program: Path, lab: LabUnderTest, env: dict[str, str], folder: Path) -> None:
        self.program, self.lab, self.folder = program, lab, folder
        self.env = {**env, "XDG_STATE_HOME": str(folder / "state")}
        self.cfg = f"inventory={lab.inventory},limit={lab.hosts[0]}:{lab.hosts[1]},launcher={_LAUNCHER}"

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.program), *args]
        app = self.folder / "app"
        app.mkdir(exist_ok=True)
        return subprocess.run(argv, cwd=app, env=self.env, capture_output=True, text=True, check=False, timeout=180)

    def run(self, *component: str) -> str:
        """The handle of an app that was started."""
        done = self("run", "-s", "nodectl", "-cfg", self.cfg, *component)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip().splitlines()[-1]

    def state(self, handle: str, wanted: str) -> str:
        until = time.monotonic() + 240
        while f"State: {wanted}" not in (said := self("status", handle).stdout):
            ended = any(f"State: {state}" in said for state in ("FAILED", "SUCCEEDED", "CANCELLED"))
            assert not ended and time.monotonic() < until, said
            time.sleep(1)
        return said


@pytest.fixture
def shell(torchx: Path, lab4: LabUnderTest, cli_env: dict[str, str], tmp_path: Path) -> Any:
    text = render("launch.sh.j2", profiles="test", venv="/nowhere")
    for host in lab4.hosts:
        argv = ["ssh", "-F", lab4.ssh_config, host, f"cat > {_LAUNCHER} && chmod 755 {_LAUNCHER}"]
        subprocess.run(argv, input=text, text=True, check=True, timeout=60)
    made = TorchX(torchx, lab4, cli_env, tmp_path)
    yield made
    nodectl = Cli(made.env)
    for line in nodectl("-i", lab4.inventory, "jobs", "list", check=False).stdout.splitlines()[1:]:
        nodectl("-i", lab4.inventory, "jobs", "stop", line.split()[0], check=False)
    nodectl("-i", lab4.inventory, "jobs", "clean", check=False)
    for host in lab4.hosts:
        lab4.ssh(host, f"rm -f {_LAUNCHER}")


def test_torchx_keeps_its_own_schedulers_and_knows_ours(torchx: Path, nodectl: Cli) -> None:
    program = "import torchx.schedulers as s; print(*s.get_scheduler_factories()); print(*s.DEFAULT_SCHEDULER_MODULES)"
    argv = [str(torchx.with_name("python")), "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=dict(nodectl.env))
    known, own = (set(line.split()) for line in done.stdout.splitlines())
    assert known == {*own, "nodectl"}


@pytest.mark.slow
def test_an_app_runs_to_its_end_with_its_words_and_macros_whole(shell: TorchX) -> None:
    words = ["a b", "$(touch /pwned)", "it's", "${replica_id}", "${app_id}", "&"]
    echo = 'printf "<%s>" "$@"; echo " $TORCHX_JOB_ID of $WORLD_SIZE"'
    handle = shell.run("utils.sh", "--num_replicas", "2", "bash", "-c", echo, "x", *words)
    app_id = handle.rpartition("/")[2]
    shell.state(handle, "SUCCEEDED")
    logs = shell("log", f"{handle}").stdout
    for replica in range(2):
        shown = "".join(f"<{word}>" for word in [*words[:3], str(replica), app_id, "&"])
        assert f"{shown} nodectl://torchx/{app_id} of 2\n" in logs, logs
    one = shell("log", f"{handle}/bash/1").stdout
    assert "<1>" in one and "<0>" not in one
    assert handle in shell("list", "-s", "nodectl").stdout
    assert all(shell.lab.ssh(host, "ls / | grep pwned") == "" for host in shell.lab.hosts)


@pytest.mark.slow
def test_an_app_is_cancelled_and_one_that_fails_says_why(shell: TorchX) -> None:
    handle = shell.run("utils.sh", "--num_replicas", "2", "sleep", "1000")
    shell.state(handle, "RUNNING")
    assert shell("cancel", handle).returncode == 0
    shell.state(handle, "CANCELLED")
    failing = shell.run("utils.sh", "--num_replicas", "2", "bash", "-c", "exit 7")
    said = shell.state(failing, "FAILED")
    assert "exit status 7" in said, said
    assert shell("status", handle.replace(handle[-4:], "0000")).returncode != 0

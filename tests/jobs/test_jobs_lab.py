"""Jobs over SSH on two lab hosts, through the command line: what an operator sees, and what stays on the hosts."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LabUnderTest
from tests.jobs.deaths import Lab
from tests.payload.fleet import LAUNCHER

pytestmark = [pytest.mark.lab]

# one write a line: print's words and its newline are two, between which another rank of the host may write
SLEEP = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(1000)\n"
_LAUNCHER = "/usr/local/bin/test-launcher"
ENDED = ("failed", "finished", "stopped")


class Shell(Lab):
    """Launches two ranks on each of two hosts."""

    def launch_argv(self, text: str, *options: str, args: tuple[str, ...] = ()) -> list[str]:
        script = self.folder / "script.py"
        script.write_text(text)
        own = ("launch", "-e", f"launcher_path={_LAUNCHER}", "--nproc-per-node", "2")
        return [*own, *options, str(script), "--", *args]

    def launch(self, text: str, *options: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return self.run(*self.launch_argv(text, *options, args=args))

    def up(self, text: str, *options: str) -> str:
        """Launch with --detach, wait until every rank has spoken; the job's id."""
        done = self.launch(text, "--detach", *options)
        assert done.returncode == 0, done.stderr
        job_id = done.stdout.strip()
        self.wait(lambda: self.run("jobs", "logs", job_id).stdout.count("| up") == 4, "the ranks did not start")
        return job_id

    def left(self, job_id: str) -> str:
        """Pids on all hosts that carry the job's mark; the lab's hosts share no process tree."""
        command = f"grep -lz '^NODECTL_JOB_ID={job_id}$' /proc/[0-9]*/environ 2>/dev/null"
        return "".join(self.lab.ssh(host, command) for host in self.lab.hosts)


@pytest.fixture(scope="module")
def lab(lab4: LabUnderTest, tmp_path_factory: pytest.TempPathFactory) -> LabUnderTest:
    return lab4.part(2, tmp_path_factory.mktemp("jobs"))


@pytest.fixture(scope="module")
def launcher_everywhere(lab: LabUnderTest, nodectl: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """On all hosts; jobs stay until the last test, since looking for them takes a second of a CPU."""
    text = LAUNCHER.format(python="/usr/bin/python3")
    for host in lab.hosts:
        said = lab.ssh(host, f"printf %s {shlex.quote(text)} > {_LAUNCHER} && chmod 755 {_LAUNCHER}")
        assert said == ""
    yield
    made = Shell(lab, nodectl, tmp_path_factory.mktemp("end"))
    for job in json.loads(made.run("--output", "json", "jobs", "list").stdout)["jobs"]:
        if job["state"] not in ENDED:
            made.run("jobs", "stop", job["id"])
    made.run("jobs", "clean")


@pytest.fixture
def shell(lab: LabUnderTest, nodectl: Any, launcher_everywhere: None, tmp_path: Path) -> Shell:
    return Shell(lab, nodectl, tmp_path)


def test_launch_follows_to_the_end_and_passes_words_and_secrets_whole(shell: Shell) -> None:
    settings, events = Path(shell.lab.inventory).parent / "nodectl.toml", "/tmp/nodectl-events"
    settings.write_text(f'on_event = ["sh", "-c", "cat >> {events}; echo >> {events}"]\n')
    words = ("a b", "$(touch /pwned)", "it's", "--x", "")
    text = "import os, sys\nos.write(1, f\"got {sys.argv[1:]} {os.environ['TOKEN']}\\n\".encode())\n"
    argv = shell.launch_argv(text, "--env", "TOKEN", args=words)
    done = shell.run(*argv, env={"TOKEN": "se'cret $(id)"})
    settings.unlink()
    assert done.returncode == 0, done.stderr
    for host in shell.lab.hosts:
        assert done.stdout.count(f"{host} | got {list(words)} se'cret $(id)\n") == 2
    second = shell.run("jobs", "logs", "--host", shell.lab.hosts[1], "--tail", "1", "last")
    assert second.stdout == f"{shell.lab.hosts[1]} | got {list(words)} se'cret $(id)\n"
    slip = shell.run("jobs", "logs", "--host", "node0l", "last")
    assert (slip.returncode, "did you mean node0" in slip.stderr) == (2, True), slip.stderr
    none = shell.run("jobs", "logs", "--rank", "4", "last")
    assert (none.returncode, "has ranks 0 to 3" in none.stderr) == (2, True), none.stderr
    job = shell.job("last")
    assert (job["state"], job["exit_status"], job["first_failure"]) == ("finished", 0, None)
    assert job["hosts"] == list(shell.lab.hosts)
    assert "se'cret" not in shell.lab.ssh(shell.lab.hosts[0], "cat ~/.local/state/nodectl/jobs/*/plan.json")
    until = time.monotonic() + 30
    while not (told := [shell.lab.ssh(host, f"cat {events} 2>/dev/null") for host in shell.lab.hosts])[0]:
        assert time.monotonic() < until, "no event came"
    shell.lab.ssh(shell.lab.hosts[0], f"rm {events}")
    event = json.loads(told[0])
    assert (event["event"], event["job"], event["details"]["state"]) == ("job_ended", job["id"], "finished")
    assert not any(told[1:])


PROJECT_SCRIPT = """
import os, sys
from pathlib import Path
from mine import ANSWER
folder = Path(os.environ["NODECTL_CHECKPOINT_DIR"])
before = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
os.write(1, f"answer {ANSWER} in {Path.cwd().name}, found {before}\\n".encode())
if os.environ["RANK"] == "0":
    for step in sys.argv[1:]:
        (folder / f"checkpoint-{step}" / "shards").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / "shards" / ".metadata").write_text(step)
        (folder / f"checkpoint-{step}" / "model.safetensors").write_text(step * 1000)
        (folder / "latest").write_text(f"checkpoint-{step}")
"""


def test_a_project_travels_and_finds_its_checkpoints(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, text in {"scripts/train.py": PROJECT_SCRIPT, "src/mine.py": "ANSWER = 42", ".env": "KEY=1"}.items():
        (tmp_path / "project" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / place).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path / "project")], check=True)
    monkeypatch.chdir(tmp_path / "project")
    argv = ["launch", "-e", f"launcher_path={_LAUNCHER}", "--nproc-per-node", "1", "--checkpoint", "/shared/train"]
    argv += ["scripts/train.py", "--"]
    done = shell.run(*argv, "1", "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("answer 42 in code, found [") == 2
    assert "without 1 secret or hidden place (.env)" in done.stderr
    job = shell.job("last")
    assert shell.lab.ssh(shell.lab.hosts[0], f"ls -A ~/.local/state/nodectl/jobs/{job['id']}/code").split() == [
        *("scripts", "src"),
    ]
    again = shell.run(*argv)
    found = [f"checkpoint-{step}/{name}" for step in (1, 2) for name in ("model.safetensors", "shards/.metadata")]
    assert again.stdout.count(f"answer 42 in code, found {[*found, 'latest']}\n") == 2, again.stderr


STEPS = SLEEP.replace(
    "time.sleep(1000)",
    """
for step in range(1, 1000):
    os.write(1, f'step {step}/1000 loss {1 / step:.3f}\\n'.encode())
    time.sleep(0.1)
""",
)


@pytest.mark.slow
def test_a_job_is_watched_and_attached_to_from_another_shell(shell: Shell) -> None:
    job_id = shell.up(STEPS)
    seen = shell.run("--output", "json", "jobs", "watch", "--once", "--interval", "2", job_id)
    assert seen.returncode == 0, seen.stderr
    document = json.loads(seen.stdout)
    assert [host["host"] for host in document["hosts"]] == list(shell.lab.hosts)
    assert all(host["step"] > 1 and host["total"] == 1000 and host["steps_per_s"] > 0 for host in document["hosts"])
    assert document["stalls"] == []
    argv = [sys.executable, "-m", "nodectl", "-i", shell.lab.inventory, "jobs", "attach", "--tail", "1", job_id]
    with subprocess.Popen(argv, env=shell.nodectl.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b"| step " in process.stdout.readline()
        assert shell.run("jobs", "stop", job_id).returncode == 0
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, b"job stopped by " in said) == (1, True)


def test_a_killed_rank_ends_the_job_in_seconds(shell: Shell) -> None:
    job_id = shell.up(SLEEP)
    host = shell.lab.hosts[1]
    shell.lab.ssh(host, "kill -9 $(grep -lz '^RANK=3$' /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3)")
    job = shell.wait_ended(job_id)
    assert (job["state"], job["exit_status"]) == ("failed", 137)
    first = job["first_failure"]
    assert (first["host"], first["rank"], first["kind"]) == (host, 3, "signal")
    assert shell.left(job_id) == ""
    why = shell.run("jobs", "why").stdout  # of the last one
    assert why.startswith(f"job failed: host {host}, rank 3: killed by signal 9 (SIGKILL)\n")
    assert shell.run("jobs", "show").stdout.startswith(f"job       {job_id}\n")


@pytest.mark.slow
def test_a_host_that_cannot_take_the_job_undoes_it_everywhere(shell: Shell) -> None:
    host = shell.lab.hosts[-1]
    folder = "~/.local/state/nodectl/jobs"
    shell.lab.ssh(host, f"mkdir -p {folder} && mount -t tmpfs -o size=64k,mode=700 none {folder}")
    try:
        padding = "# " + os.urandom(100_000).hex() + "\n"
        done = shell.launch(padding + SLEEP)
    finally:
        shell.lab.ssh(host, f"umount {folder}")
    assert done.returncode == 1
    assert f"{host} could not take and start the job" in done.stderr
    assert "No space left on device" in done.stderr
    job_id = done.stderr.partition("job ")[2].partition(":")[0]
    for name in shell.lab.hosts[:-1]:  # the word that nothing of it is to come any more is all that is left
        assert shell.lab.ssh(name, f"ls -A {folder} | grep {job_id}").split() == [f".{job_id}.undone"]
        assert shell.left(job_id) == ""

"""A run that is killed at any point: the next one converges, nothing is half-written, and the way back still works."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nodectl.common.resources import share_dir
from tests.playbooks import PROGRAM, ansible_playbook
from tests.provision.conftest import Fleet

# the first play that changes something, and the tasks in it and after it at which the blow falls
FIRST_CHANGE = r"PLAY \[Install what the stack profile says"
POINTS = {
    "recording": r"TASK \[Hold this host, and note",
    "limits": r"TASK \[nodectl.fleet.limits : Write limits",
    "environment": r"TASK \[nodectl.fleet.pytorch : Install PyTorch",
    "launcher": r"TASK \[nodectl.fleet.launcher : Write",
    "kernel": r"TASK \[nodectl.fleet.kernel_settings : Set",
}
SETTINGS = ("--tags", "limits,kernel_settings,nccl_env")

pytestmark = pytest.mark.lab


@pytest.fixture
def article(fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    """One host's run is enough to be killed; another shows that the rest goes on."""
    made = fleet("node01", "node02", nodectl_tuning="article-20g")
    made.lab.ssh("node01", "sysctl -qw net.ipv4.tcp_rmem='4096 131072 6291456'")
    made.lab.ssh("node02", "echo NCCL_IB_TIMEOUT=23 > /etc/nccl.conf")
    yield made
    end_children(made.inventory)


def end_children(inventory: str) -> None:
    """What outlived its killed ansible-playbook in sessions of its own, known by this test's inventory."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if inventory in (entry / "cmdline").read_text().split("\0") and int(entry.name) != os.getpid():
                os.kill(int(entry.name), signal.SIGKILL)


def started_until(fleet: Fleet, playbook: str, task: str, *options: str, after: str = "") -> subprocess.Popen[str]:
    """ansible-playbook in a process group of its own, which has begun the task, after another."""
    path = str(share_dir() / "playbooks" / playbook)
    argv = [PROGRAM, "-i", fleet.inventory, path, *options]
    process = subprocess.Popen(
        argv,
        cwd=share_dir(),
        env={**fleet.cli.env, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    begun, said = not after, []
    for line in process.stdout:
        said.append(line)
        begun = begun or bool(re.match(after, line))
        if begun and re.match(task, line):
            return process
    pytest.fail(f"{playbook} ended without {task}:\n{''.join(said)}")


def site_until(fleet: Fleet, task: str, *options: str) -> subprocess.Popen[str]:
    """site.yml in the middle of the task."""
    process = started_until(fleet, "site.yml", task, *options, after=FIRST_CHANGE)
    time.sleep(0.4)  # the module is on its way or at work
    return process


def plainly(fleet: Fleet, playbook: str, *options: str) -> None:
    """The next run of an operator without nodectl; the killed one's connections hold the hosts for another minute."""
    words = ("-i", fleet.inventory, str(share_dir() / "playbooks" / playbook), "-e", "nodectl_force=true", *options)
    done = ansible_playbook(*words, cwd=share_dir(), env=fleet.cli.env)
    assert done.returncode == 0, done.stdout + done.stderr


def kill_sessions(fleet: Fleet, host: str) -> None:
    """SIGKILL everything on a host but its listening sshd: sessions, shells and what they run."""
    first = next(entry["pid"] for entry in fleet.lab.status["hosts"] if entry["name"] == host)
    namespace = Path(f"/proc/{first}/ns/pid").readlink()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(entry.name) != first and (entry / "ns" / "pid").readlink() == namespace:
                os.kill(int(entry.name), signal.SIGKILL)


def ended(process: subprocess.Popen[str]) -> str:
    """What the rest of the run said."""
    said, _ = process.communicate(timeout=240)
    return said


def assert_converges_and_goes_back(fleet: Fleet, before: dict[str, dict[str, str]], *options: str) -> None:
    """The next run finishes, the one after has nothing to do, and the start is still the start."""
    plainly(fleet, "site.yml", *options)
    fleet.assert_nothing_half_written()
    assert fleet.changed("provision", *options) == {0}
    fleet.run("rollback", "--to", "start")
    fleet.assert_nothing_half_written()
    fleet.assert_as(before)


@pytest.mark.slow
def test_sigkill_of_ansible_in_mid_run(article: Fleet) -> None:
    before = article.snapshot()
    process = site_until(article, POINTS["limits"], *SETTINGS)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    plainly(article, "rollback.yml", "-e", "rollback_to=start")
    article.assert_nothing_half_written()
    article.assert_as(before)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
def test_after_sigkill_of_ansible_the_next_run_converges(article: Fleet, point: str) -> None:
    before = article.snapshot()
    process = site_until(article, POINTS[point])
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)
    assert_converges_and_goes_back(article, before)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
def test_after_sigkill_on_one_node_the_next_run_converges(article: Fleet, point: str) -> None:
    before = article.snapshot()
    process = site_until(article, POINTS[point])
    kill_sessions(article, "node01")
    said = ended(process)
    other = re.search(r"^node02\s+: ok=(\d+) .*unreachable=0\s+failed=0", said, re.MULTILINE)
    assert other, f"the other host goes on\n{said}"
    assert_converges_and_goes_back(article, before)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rollback_that_is_killed_is_finished_by_the_next(article: Fleet) -> None:
    before = article.snapshot()
    article.run("provision", *SETTINGS)
    for delay in (0.0, 0.2, 0.4):
        process = started_until(article, "rollback.yml", r"TASK \[Restore the recorded state")
        time.sleep(delay)
        for host in article.hosts:
            kill_sessions(article, host)
        ended(process)
    article.run("rollback", "--to", "start")
    article.assert_nothing_half_written()
    article.assert_as(before)

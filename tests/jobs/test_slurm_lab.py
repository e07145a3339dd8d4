"""A real Slurm on three lab hosts: exported batch scripts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl.jobs.export import render
from tests.conftest import Cli
from tests.jobs.slurm_cluster import SHARED, SlurmCluster, slurm_on

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

_LAUNCHER, _VENV = "/opt/nodectl/bin/nodectl-launch", "/opt/nodectl/venv"
# what torchrun does, without torch: the ranks of this node, their lines marked, the first failure ends the others
_TORCHRUN = """\
#!/usr/bin/python3
import os, signal, subprocess, sys, threading, time
argv, options = sys.argv[1:], {}
while argv[0].startswith("--"):
    options[argv[0]], argv = argv[1], argv[2:]
count = int(options["--nproc-per-node"])
first = int(options["--node-rank"]) * count
os.write(1, f"torchrun {sorted(options.items())}\\n".encode())
def copy(local_rank, stream):
    for line in stream:
        os.write(1, b"[default%d]:%s" % (local_rank, line))
ranks = []
for number in range(count):
    env = dict(os.environ, RANK=str(first + number), LOCAL_RANK=str(number))
    argv0 = ["/usr/bin/python3", "-u", *argv]
    ranks.append(subprocess.Popen(argv0, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
threads = [threading.Thread(target=copy, args=(n, rank.stdout)) for n, rank in enumerate(ranks)]
[thread.start() for thread in threads]
signal.signal(signal.SIGTERM, lambda *_: [rank.terminate() for rank in ranks])
while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
    time.sleep(0.05)
failed = [number for number, rank in enumerate(ranks) if rank.poll()]
[rank.terminate() for rank in ranks]
[thread.join() for thread in threads]
for number in failed:
    text = f"failed (exitcode: {ranks[number].poll()}) local_rank: {number} (pid: {ranks[number].pid})\\n"
    os.write(1, text.encode())
sys.exit(1 if failed else 0)
"""
# what the launch script needs of torch to start torchrun on several nodes
_SITE = f"{_VENV}/lib/python3.11/site-packages"
_TORCH = {
    f"{_SITE}/torch-2.4.0.dist-info/METADATA": "Name: torch\n",
    f"{_SITE}/torch/distributed/run.py": (
        f"import runpy\ndef main():\n    runpy.run_path('{_VENV}/bin/torchrun', run_name='__main__')\n"
    ),
    f"{_SITE}/torch/distributed/elastic/agent/server/api.py": "class SimpleElasticAgent:\n    _exit_barrier = None\n",
}
_SLEEP = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(1000)\n"
_WORK = f"{SHARED}/work"


@pytest.fixture(scope="module")
def cluster(nodectl: Cli, lab_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with nodectl.lab(f"slurm-{os.getpid()}", 3) as lab:
        share = Path(nodectl.env["XDG_CACHE_HOME"]) / "nodectl" / "lab-share"
        with slurm_on(lab, share, tmp_path_factory.mktemp("slurm")) as made:
            for place, text in {
                _LAUNCHER: render("launch.sh.j2", profiles="test", venv=_VENV),
                f"{_VENV}/bin/torchrun": _TORCHRUN,
                f"{_VENV}/bin/python": f'#!/bin/sh\nPYTHONPATH={_SITE} exec /usr/bin/python3 "$@"\n',
                f"{_VENV}/pyvenv.cfg": "version = 3.11\n",
                **_TORCH,
            }.items():
                put(made, place, text)
            yield made


def put(cluster: SlurmCluster, place: str, text: str, mode: str = "755") -> None:
    """The same file on all hosts."""
    for host in cluster.lab.hosts:
        command = f"mkdir -p $(dirname {place}) && cat > {place} && chmod {mode} {place}"
        argv = ["ssh", "-F", cluster.lab.ssh_config, host, command]
        assert subprocess.run(argv, input=text, text=True, check=False, timeout=60).returncode == 0


@dataclass(frozen=True, slots=True)
class Exported:
    """Exports scripts by the cluster's inventory into a folder that all hosts share."""

    cluster: SlurmCluster
    nodectl: Cli

    def export(self, text: str, *options: str, args: tuple[str, ...] = ()) -> None:
        words = ("--nproc-per-node", "2", *options, "script.py", "--", *args)
        job = self.nodectl("-i", self.cluster.lab.inventory, "export", "sbatch", *words).stdout
        put(self.cluster, f"{_WORK}/script.py", text)
        put(self.cluster, f"{_WORK}/job.sh", job)

    def submit(self, *options: str, env: str = "") -> str:
        """What sbatch prints: the job's number, with --wait when it has ended; then its exit status."""
        return self.cluster.ssh(f"cd {_WORK} && {env} sbatch --parsable {shlex.join(options)} job.sh; echo $?")

    def log(self, number: str, node: int) -> str:
        return self.cluster.ssh(f"cat {_WORK}/nodectl-{number}/ranks/{node}.log")


@pytest.fixture
def exported(cluster: SlurmCluster, nodectl: Cli) -> Iterator[Exported]:
    yield Exported(cluster, nodectl)
    cluster.ssh(f"scancel --user=root; rm -rf {_WORK}")
    wait_for_no_jobs(cluster)


def wait_for_no_jobs(cluster: SlurmCluster) -> None:
    until = time.monotonic() + 60
    while queue := cluster.ssh("squeue --noheader"):
        assert time.monotonic() < until, queue
        time.sleep(0.5)


def torchrun_options(text: str) -> dict[str, str]:
    """What the launch script gave torchrun on a host, without what differs from job to job."""
    shown = re.search(r"torchrun (\[.*\])$", text, re.MULTILINE)
    assert shown, text
    own = ("--master-port", "--rdzv-id", "--log-dir", "--tee")  # over SSH the output is read from the ranks' files
    return {name: value for name, value in eval(shown[1]) if name not in own}  # noqa: S307 - printed by our own stub


@pytest.mark.slow
def test_an_exported_script_starts_the_ranks_that_a_launch_starts(exported: Exported, tmp_path: Path) -> None:
    words = ("a b", "$(touch /pwned)", "it's", "--x", "")
    text = 'import os, sys\nprint("got", sys.argv[1:], os.environ["TOKEN"], flush=True)\n'
    exported.export(text, args=words)
    number, status = exported.submit("--wait", env="TOKEN='se cret'").split()
    assert status == "0", exported.cluster.ssh(f"cat {_WORK}/slurm-{number}.out")
    (tmp_path / "script.py").write_text(text)
    launched = exported.nodectl(
        *("-i", exported.cluster.lab.inventory, "launch", "--nproc-per-node", "2", "--env", "TOKEN"),
        *(str(tmp_path / "script.py"), "--", *words),
        env={"TOKEN": "se cret"},
    ).stdout
    for node, host in enumerate(exported.cluster.lab.hosts):
        log = exported.log(number, node)
        for rank in (0, 1):
            assert f"[default{rank}]:got {list(words)} se cret" in log.splitlines()
            assert f"{host} | [{rank}] got {list(words)} se cret\n" in launched
        over_ssh = "".join(line for line in launched.splitlines(keepends=True) if line.startswith(host))
        assert torchrun_options(log) == torchrun_options(over_ssh)
    assert exported.cluster.ssh("ls / | grep pwned") == ""


@pytest.mark.slow
def test_a_failing_rank_ends_an_exported_job(exported: Exported) -> None:
    text = _SLEEP.replace("time.sleep", "if os.environ['RANK'] == '3': raise ValueError('bad number 3')\ntime.sleep")
    exported.export(text)
    number, status = exported.submit("--wait").split()
    assert status != "0"
    assert "ValueError: bad number 3" in exported.log(number, 1)
    assert "JobState=FAILED " in exported.cluster.ssh(f"scontrol --oneliner show job {number}")
    assert [exported.cluster.ssh("ps ax | grep '[s]cript.py'", host) for host in range(3)] == ["", "", ""]


@pytest.mark.slow
def test_scancel_leaves_nothing_of_an_exported_job(exported: Exported) -> None:
    exported.export(_SLEEP, '--sbatch=--comment=a "b" #c \\ $(touch /pwned) \'d')
    number, _ = exported.submit().split()
    until = time.monotonic() + 120
    while (logs := [exported.log(number, node).count("]:up") for node in range(3)]) != [2, 2, 2]:
        assert time.monotonic() < until, logs
        time.sleep(1)
    assert 'Comment=a "b" #c \\ $(touch /pwned) \'d' in exported.cluster.ssh(f"scontrol show job {number}")
    exported.cluster.ssh(f"scancel {number}")
    wait_for_no_jobs(exported.cluster)
    left = [exported.cluster.ssh("ps ax | grep '[s]cript.py'; ls / | grep pwned", host) for host in range(3)]
    assert left == ["", "", ""]

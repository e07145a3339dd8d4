"""A real Slurm on three lab hosts: exported batch scripts, and health that drains a node."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl.jobs.export.templates import render
from tests.conftest import Cli
from tests.jobs.slurm_cluster import SHARED, SlurmCluster, slurm_on

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

_ROOT = Path(__file__).resolve().parents[2]
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
# a look of a node judges by what it should be: without, it could not be told
_PROFILES = {"nodectl_hardware": "lab-cpu", "nodectl_stack": "none", "nodectl_tuning": "stock"}
_LOOK = "/opt/nodectl/bin/look-once"
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


@pytest.fixture(scope="module")
def tool(cluster: SlurmCluster, nodectl: Cli) -> Iterator[None]:
    """nodectl itself on the hosts, where the health_timer role has it, and that role's program for Slurm."""
    if cluster.ssh("python3 -c 'import sys; print(*sys.version_info[:2])'").split() != list(
        map(str, sys.version_info[:2])
    ):
        pytest.skip("the hosts have another Python than this environment's packages are for")
    share = Path(nodectl.env["XDG_CACHE_HOME"]) / "nodectl" / "lab-share"
    folder = share / f"tool-{os.getpid()}"
    try:
        _link_tree(Path(pytest.__file__).resolve().parents[1], folder / "site")
        for part in ("nodectl", "roles", "plugins", "playbooks", "meta"):
            _link_tree(_ROOT / part, folder / part)
        (folder / "ansible_collections" / "nodectl").mkdir(parents=True)
        (folder / "ansible_collections" / "nodectl" / "fleet").symlink_to("../..")
        place = f"/srv/nodectl/{folder.name}"
        put(cluster, "/opt/nodectl/tool/bin/nodectl", "#!/bin/sh\nPYTHONDONTWRITEBYTECODE=1 "
            f'PYTHONPATH={place}/site:{place} exec /usr/bin/python3 -m nodectl "$@"\n')  # fmt: skip
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _link_tree(source: Path, target: Path) -> None:
    # bytecode goes along, or each look of each host compiles all of it; a name with a number behind it is half-written
    shutil.copytree(source, target, copy_function=_link, symlinks=True, ignore=shutil.ignore_patterns("*.pyc.*"))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def role_program() -> str:
    """The program as the health_timer role writes it."""
    template = _ROOT / "roles/health_timer/templates/opt/nodectl/bin/nodectl-slurm-health.j2"
    text = template.read_text()
    for name, value in {
        "{{ health_timer_tool }}": "/opt/nodectl/tool",
        "{{ health_timer_inventory }}": "/etc/nodectl/health/inventory.json",
        "{{ ' --resume' if health_timer_slurm_resume | bool else '' }}": " --resume",
    }.items():
        assert name in text
        text = text.replace(name, value)
    return text


def wait_state(cluster: SlurmCluster, host: str, wanted: str) -> str:
    """scontrol's line of the node, when its state has come to be the wanted one."""
    until = time.monotonic() + 150
    while f"State={wanted} " not in (line := cluster.ssh(f"scontrol --oneliner show node {host}")):
        assert time.monotonic() < until, line
        time.sleep(1)
    return line


@pytest.mark.slow
def test_a_failing_check_drains_the_node_with_the_finding_and_its_mending_gives_it_back(
    cluster: SlurmCluster, tool: None
) -> None:
    hosts = cluster.lab.hosts
    data = '/da"ta $(touch /pwned)'
    for number, host in enumerate(hosts):
        inventory = {"ansible_connection": "local", "nodectl_health": {"mounts": [data]}, **_PROFILES}
        text = json.dumps({"all": {"hosts": {host: inventory}}})
        cluster.ssh(f"mkdir -p /etc/nodectl/health '{data}'; mount -t tmpfs data '{data}'", number)
        argv = ["ssh", "-F", cluster.lab.ssh_config, host, "cat > /etc/nodectl/health/inventory.json"]
        subprocess.run(argv, input=text, text=True, check=True, timeout=60)
    assert cluster.ssh(f"scontrol update nodename={hosts[2]} state=drain reason='operator: a fan'") == ""
    # slurmd has it from one of them only, since each look takes a second of a CPU; the others look when they are told
    put(cluster, _LOOK, role_program())
    look = "SLURMD_NODENAME={} " + f"{_LOOK}; echo $?"
    said = cluster.ssh(look.format(hosts[1]), 1)
    assert said.endswith("\n0"), said
    for number in (1, 2):
        cluster.ssh(f"umount '{data}'", number)
    cluster.ssh(f"ln -sf {_LOOK} /opt/nodectl/bin/nodectl-slurm-health", 1)
    line = wait_state(cluster, hosts[1], "IDLE+DRAIN")
    assert "Reason=nodectl: mount /da'ta $(touch /pwned): not mounted [root@" in line
    assert cluster.ssh("ls / | grep pwned", 1) == ""
    assert cluster.ssh(look.format(hosts[0])).endswith("0")
    assert "State=IDLE " in cluster.ssh(f"scontrol --oneliner show node {hosts[0]}")
    by_hand = cluster.ssh(look.format(hosts[2]), 2)
    assert f"{hosts[2]} is drained already: operator: a fan" in by_hand and "\n1\n" in by_hand, by_hand
    for number in (1, 2):
        cluster.ssh(f"mount -t tmpfs data '{data}'", number)
    wait_state(cluster, hosts[1], "IDLE")
    cluster.ssh(look.format(hosts[2]), 2)
    assert "Reason=operator: a fan" in wait_state(cluster, hosts[2], "IDLE+DRAIN")
    assert cluster.ssh(f"scontrol update nodename={hosts[2]} state=resume") == ""

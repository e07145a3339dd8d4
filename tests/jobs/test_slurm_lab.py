"""Jobs by a real Slurm on three lab hosts: submit, follow, fail, stop; as over SSH; and health that drains a node."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs.export.templates import render
from tests.conftest import Cli, LabUnderTest
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
# a look of a node judges by what it should be: without, it could not be told
_PROFILES = {"nodectl_hardware": "lab-cpu", "nodectl_stack": "none", "nodectl_tuning": "stock"}
_LOOK = "/opt/nodectl/bin/look-once"
ENDED = ("failed", "finished", "stopped")
_SLEEP = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(1000)\n"


class Shell:
    """An operator's shell with this cluster as inventory."""

    def __init__(self, cluster: SlurmCluster, nodectl: Cli, folder: Path) -> None:
        self.cluster, self.nodectl, self.folder = cluster, nodectl, folder

    def run(self, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.nodectl("-i", self.cluster.inventory, *args, check=False, **more)

    def launch(self, text: str, *options: str, args: tuple[str, ...] = (), **more: Any) -> Any:
        script = self.folder / "script.py"
        script.write_text(text)
        return self.run("launch", "--nproc-per-node", "2", *options, str(script), "--", *args, **more)

    def job(self, wanted: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.run("--output", "json", "jobs", "show", wanted).stdout)["jobs"][0]
        return document


@pytest.fixture(scope="module")
def cluster(nodectl: Cli, lab_machine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    name = f"slurm-{os.getpid()}"
    inventory = nodectl("lab", "up", "-n", "3", "--name", name).stdout.strip()
    try:
        status = json.loads(nodectl("lab", "status", "--name", name, "--output", "json").stdout)
        hosts = tuple(host["name"] for host in status["hosts"])
        lab = LabUnderTest(inventory, status, hosts, status["ssh_config"])
        share = Path(nodectl.env["XDG_CACHE_HOME"]) / "nodectl" / "lab-share"
        with slurm_on(lab, share, tmp_path_factory.mktemp("slurm")) as made:
            for place, text in {
                _LAUNCHER: render("launch.sh.j2", profiles="test", venv=_VENV),
                f"{_VENV}/bin/torchrun": _TORCHRUN,
                f"{_VENV}/bin/python": '#!/bin/sh\nexec /usr/bin/python3 "$@"\n',
                f"{_VENV}/pyvenv.cfg": "version = 3.11\n",
                f"{_VENV}/lib/python3.11/site-packages/torch-2.4.0.dist-info/METADATA": "Name: torch\n",
            }.items():
                put(made, place, text)
            yield made
    finally:
        nodectl("lab", "down", "--name", name)


def put(cluster: SlurmCluster, place: str, text: str, mode: str = "755") -> None:
    """The same file on all hosts."""
    for host in cluster.lab.hosts:
        command = f"mkdir -p $(dirname {place}) && cat > {place} && chmod {mode} {place}"
        argv = ["ssh", "-F", cluster.lab.ssh_config, host, command]
        assert subprocess.run(argv, input=text, text=True, check=False, timeout=60).returncode == 0


@pytest.fixture
def shell(cluster: SlurmCluster, nodectl: Cli, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(cluster, nodectl, tmp_path)
    yield made
    for job in json.loads(made.run("--output", "json", "jobs", "list").stdout)["jobs"]:
        if job["state"] not in ENDED:
            made.run("jobs", "stop", job["id"])
    made.run("jobs", "clean")


def torchrun_options(text: str, host: str) -> dict[str, str]:
    """What the launch script gave torchrun on a host, without what differs from job to job."""
    shown = re.search(rf"^{host} +\| torchrun (\[.*\])$", text, re.MULTILINE)
    assert shown, text
    own = ("--master-port", "--rdzv-id", "--log-dir", "--tee")  # over SSH the output is read from the ranks' files
    return {name: value for name, value in eval(shown[1]) if name not in own}  # noqa: S307 - printed by our own stub


@pytest.mark.slow
def test_the_same_script_as_over_ssh_with_the_same_words_and_secrets(shell: Shell) -> None:
    words = ("a b", "$(touch /pwned)", "it's", "--x", "")
    text = 'import os, sys\nprint("got", sys.argv[1:], os.environ["TOKEN"], os.getcwd().split("/")[-1], flush=True)\n'
    given: dict[str, Any] = {"args": words, "env": {"TOKEN": "se'cret $(id)"}}
    by_slurm = shell.launch(text, "--via", "slurm", "--env", "TOKEN", **given)
    assert by_slurm.returncode == 0, by_slurm.stdout + by_slurm.stderr
    by_ssh = shell.launch(text, "--env", "TOKEN", **given)
    assert by_ssh.returncode == 0, by_ssh.stdout + by_ssh.stderr
    line = f"got {list(words)} se'cret $(id) code"
    for host in shell.cluster.lab.hosts:
        for rank in (0, 1):
            assert f"{host} | [{rank}] {line}\n" in by_slurm.stdout and f"{host} | [{rank}] {line}\n" in by_ssh.stdout
        assert torchrun_options(by_slurm.stdout, host) == torchrun_options(by_ssh.stdout, host)
    listed = json.loads(shell.run("--output", "json", "jobs", "list").stdout)["jobs"]
    assert [job["slurm"] is not None for job in listed] == [True, False]
    assert (listed[0]["state"], listed[0]["exit_status"], listed[0]["slurm"]["state"]) == ("finished", 0, "COMPLETED")
    assert listed[0]["hosts"] == list(shell.cluster.lab.hosts)
    shown = shell.run("jobs", "show", listed[0]["id"]).stdout
    assert re.search(r"run by +Slurm job \d+: COMPLETED", shown)
    one = shell.run("jobs", "logs", "--rank", "3", listed[0]["id"])
    assert one.stdout == f"{shell.cluster.lab.hosts[1]} | [1] {line}\n"
    assert "se'cret" not in shell.cluster.ssh(f"cat {SHARED}/jobs/*/plan.json {SHARED}/jobs/*/job.sh")
    assert shell.cluster.ssh("ls / | grep pwned") == ""
    assert shell.run("jobs", "clean").returncode == 0
    assert shell.cluster.ssh(f"ls {SHARED}/jobs") == ""


@pytest.mark.slow
def test_a_failing_rank_ends_the_job_and_is_named(shell: Shell) -> None:
    text = _SLEEP.replace("time.sleep", "if os.environ['RANK'] == '3': raise ValueError('bad number 3')\ntime.sleep")
    done = shell.launch(text, "--via", "slurm")
    host = shell.cluster.lab.hosts[1]
    assert done.returncode == 1, done.stderr
    assert f"job failed: host {host}, rank 3: ValueError: bad number 3" in done.stdout
    first = shell.job("last")["first_failure"]
    assert (first["host"], first["rank"], first["kind"], first["exit_status"]) == (host, 3, "exception", 1)
    assert (first["class"], "its own error file: an uncaught exception" in first["evidence"]) == ("script_error", True)
    assert "in <module>" in first["traceback"] and first["remedy"]
    why = shell.run("jobs", "why")
    assert why.returncode == 0 and why.stdout.startswith(f"job failed: host {host}, rank 3: ValueError: bad number 3")


@pytest.mark.slow
def test_stop_leaves_nothing_of_it_and_a_waiting_job_says_why_it_waits(shell: Shell) -> None:
    started = shell.launch(_SLEEP, "--via", "slurm", "--detach", '--sbatch=--comment=a "b" #c \\ $(touch /pwned) \'d')
    assert started.returncode == 0, started.stderr
    job_id = started.stdout.strip()
    until = time.monotonic() + 120
    while shell.run("jobs", "logs", job_id).stdout.count("] up") < 6:
        assert time.monotonic() < until, shell.run("jobs", "logs", job_id).stdout
        time.sleep(1)
    assert shell.job(job_id)["state"] == "running"
    number = shell.job(job_id)["slurm"]["id"]
    assert 'Comment=a "b" #c \\ $(touch /pwned) \'d' in shell.cluster.ssh(f"scontrol show job {number}")
    second = shell.launch(_SLEEP, "--via", "slurm", "--detach", "--nodes", "1").stdout.strip()
    waiting = shell.job(second)
    assert (waiting["state"], waiting["hosts"], waiting["slurm"]["nodes"]) == ("starting", [], 1)
    until = time.monotonic() + 60
    while shell.job(second)["slurm"]["reason"] != "Resources":
        assert time.monotonic() < until, shell.job(second)
        time.sleep(1)
    assert shell.run("jobs", "clean", job_id).returncode == 2
    for stopped in (second, job_id):
        done = shell.run("jobs", "stop", stopped)
        assert done.returncode == 0 and "job stopped" in done.stdout, done.stdout + done.stderr
    assert shell.job(job_id)["state"] == "stopped"
    left = [shell.cluster.ssh("ps ax | grep '[s]cript.py'; ls / | grep pwned", host) for host in range(3)]
    assert left == ["", "", ""]
    assert shell.cluster.ssh("squeue --noheader") == ""


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


def node(cluster: SlurmCluster, host: str) -> str:
    return cluster.ssh(f"scontrol --oneliner show node {host}")


def wait_queue(cluster: SlurmCluster, wanted: str) -> None:
    """Until the states of all jobs, as squeue has them, are these."""
    until = time.monotonic() + 60
    while (states := cluster.ssh("squeue --noheader --format=%T")) != wanted:
        assert time.monotonic() < until, states
        time.sleep(0.5)


@pytest.mark.slow
def test_nodes_of_a_reservation_are_taken_judged_and_drained_or_given_back(shell: Shell) -> None:
    cluster, (good, bad, outside) = shell.cluster, shell.cluster.lab.hosts
    data = "/x $(touch /pwned)"
    cluster.ssh(f"mkdir -p '{data}'; mount -t tmpfs data '{data}'")
    wanted = {"nodectl_stack": "none", "pytorch_venv": "/none", "nodectl_health": {"mounts": [data]}}
    accept = ("accept", "--level", "quick", "-e", json.dumps(wanted), "--via", "slurm", "--reservation", "days")
    made = "scontrol create reservation=days starttime=now duration=60 users=root flags=ignore_jobs nodes={}"
    cluster.ssh(made.format(f"{good},{bad}"))
    refused = shell.run(*accept)
    assert refused.returncode == 2 and f"{outside}: not in Slurm's reservation days, " in refused.stderr
    assert f"scontrol update reservation=days nodes+={outside}" in refused.stderr
    cluster.ssh(f"sbatch --reservation=days --nodelist={bad} --exclusive --output=/dev/null --wrap='sleep 8'")
    done = shell.run("-l", f"{good},{bad}", "--output", "json", *accept)
    assert done.returncode == 1, done.stderr
    assert re.search(r"\(nodectl-accept-\w+\) waits for its nodes: ", done.stderr), done.stderr
    verdicts = {host["host"]: host["verdict"] for host in json.loads(done.stdout)["hosts"]}
    assert verdicts[good].startswith("accepted") and verdicts[bad] == "rejected", done.stdout
    assert "State=IDLE+RESERVED " in node(cluster, good)
    assert f"Reason=nodectl accept: mount {data}: not mounted [root@" in node(cluster, bad)
    assert "State=IDLE+DRAIN" in node(cluster, bad) and cluster.ssh("squeue --noheader; ls / | grep pwned") == ""
    drained = shell.run("-l", bad, *accept)
    assert drained.returncode == 2 and "IDLE+DRAIN" in drained.stderr and "state=resume" in drained.stderr
    cluster.ssh(f"scontrol update nodename={bad} state=resume; scontrol delete reservation=days")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["TERM", "KILL", "INT, waiting", "scancel"])
def test_however_a_measurement_ends_nothing_stays_allocated(shell: Shell, ending: str) -> None:
    cluster, (_, other, host) = shell.cluster, shell.cluster.lab.hosts
    if "waiting" in ending:
        cluster.ssh(f"sbatch --nodelist={host} --exclusive --output=/dev/null --wrap='sleep 500'")
        wait_queue(cluster, "RUNNING")
    # it would take minutes
    argv = ["-i", cluster.inventory, "-l", f"{other},{host}", "probe", "tcp", "--duration", "60", "--via", "slurm"]
    stderr = shell.folder / "stderr"
    with stderr.open("w") as file:
        process = subprocess.Popen([sys.executable, "-m", "nodectl", *argv], env=shell.nodectl.env, stderr=file)
    wanted = "waits for its nodes" if "waiting" in ending else "holds the nodes"
    until = time.monotonic() + 60
    while wanted not in (said := stderr.read_text()):
        assert time.monotonic() < until, said
        time.sleep(0.2)
    if ending == "scancel":
        cluster.ssh("scancel --user=root")
    else:
        process.send_signal(getattr(signal, f"SIG{ending.partition(',')[0]}"))
    status, said = process.wait(100), stderr.read_text()
    assert status == (-9 if ending == "KILL" else 130), said
    assert ("allocation has ended" in said) == (ending == "scancel"), said
    wait_queue(cluster, "RUNNING" if "waiting" in ending else "")
    cluster.ssh("scancel --user=root")

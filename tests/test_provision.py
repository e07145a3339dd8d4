"""Provisioning: Ansible's events as values, and real runs on the lab."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir
from nodectl.provision.events import HostTally, ProvisionRun, failure_text, read_event, read_tallies, report_text


def test_tallies_hold_each_host_of_the_closing_event() -> None:
    stats = {"ok": {"a": 5, "b": 2}, "changed": {"a": 3}, "failures": {"b": 1}, "dark": {"c": 1}, "processed": {"a": 1}}
    assert read_tallies(stats) == {
        "a": HostTally(5, 3, 0, 0),
        "b": HostTally(2, 0, 1, 0),
        "c": HostTally(0, 0, 0, 1),
    }


@pytest.mark.parametrize(
    ("tallies", "status"),
    [
        ([HostTally(9, 2, 0, 0)], 0),
        ([HostTally(9, 0, 0, 0), HostTally(0, 0, 0, 1)], 3),
        ([HostTally(9, 0, 1, 0), HostTally(0, 0, 0, 1)], 1),
    ],
)
def test_the_exit_status_is_that_of_the_worst_host(tallies: list[HostTally], status: int) -> None:
    assert ProvisionRun("r", {str(i): tally for i, tally in enumerate(tallies)}, (), ()).exit_status == status


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"msg": "no", "stderr": "because"}, "no\nbecause"),
        ({"msg": "same", "stderr": "same"}, "same"),
        ({"results": [{"item": "a"}, {"item": "b", "failed": True, "msg": "no b"}]}, "b: no b"),
        ({"stdout": "only this"}, "only this"),
        ({"msg": "Task failed: Error: The lookup plugin 'fleet_profile' failed: no such name"}, "no such name"),
        ({}, "no reason given"),
        (
            {"msg": 'E: disk full\n  File "<stdin>", line 9, in _one\n  File "x.py", line 1, in y\n    z()'},
            "E: disk full",
        ),
        ({"msg": 'no\nFile "x.py" is gone\n  File it'}, 'no\nFile "x.py" is gone\n  File it'),
    ],
)
def test_why_a_task_failed_is_found_in_whichever_field(result: Mapping[str, Any], text: str) -> None:
    assert failure_text(result) == text


def test_events_become_values() -> None:
    data = {"host": "n1", "task": "Write", "role": "r", "task_action": "template", "res": {"changed": True}}
    event = read_event("runner_on_ok", data, "changed: [n1]")
    assert event is not None and (event.host, event.task, event.outcome) == ("n1", "r: Write", "changed")
    warned = read_event("runner_on_ok", data | {"res": {"changed": True, "warnings": ["it is late"]}}, "")
    assert warned is not None and (warned.outcome, warned.text) == ("changed", "warning: it is late")
    diff = read_event("runner_on_file_diff", data, "\n--- a\n+++ b\n")
    assert diff is not None and (diff.outcome, diff.diff) == ("diff", "--- a\n+++ b")
    failed = read_event("runner_on_failed", data | {"res": {"msg": "no"}}, "")
    assert failed is not None and (failed.outcome, failed.text) == ("failed", "no")
    assert read_event("runner_on_failed", data | {"ignore_errors": True}, "") is None
    assert read_event("playbook_on_play_start", {}, "") is None
    assert report_text("ansible.builtin.debug", {"msg": ["a", "b"]}) == "a\nb"
    assert report_text("ansible.builtin.command", {"msg": "a"}) == ""


def test_without_nodectl_in_ansibles_python_the_first_task_says_so(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['nodectl'] = None\n"
        "from ansible.cli.playbook import main; main(['ansible-playbook', *sys.argv[1:]])"
    )
    site = share_dir() / "playbooks" / "site.yml"
    (tmp_path / "hosts.yml").write_text("all: {hosts: {here: {ansible_connection: local}}}")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    env |= {"PYTHONPATH": str(Path(__file__).parent.parent)}
    argv = [sys.executable, "-c", script, "-i", str(tmp_path / "hosts.yml"), "--check", str(site)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "No module named 'nodectl" in said and "install it there" in " ".join(said.split())
    assert said.count("TASK [") == 1, "before anything changes"


# --- on the lab ---------------------------------------------------------------------------------------------------

Provision = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def provision(nodectl: Any, lab4: Any) -> Provision:
    """`provision(*options, inventory=…)` → (exit status, the JSON document, what was said)."""

    def run(*options: str, inventory: str = "", **env: str) -> tuple[int, dict[str, Any], str]:
        argv = ["-i", inventory or lab4.inventory, "--output", "json", "provision", "--yes", *options]
        done = nodectl(*argv, check=False, timeout=280, env=env)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    return run


@pytest.fixture(scope="module")
def fleet(lab4: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """`fleet(host={variable: value}, …)`: an inventory of these lab hosts with variables of their own.

    A name that no host has is one more for the first host.
    """

    def write(**hosts: Mapping[str, Any]) -> str:
        document = yaml.safe_load(Path(lab4.inventory).read_text())
        group = document["all"]["children"]["lab"]
        there, first = group["hosts"], group["hosts"]["node01"]
        group["hosts"] = {name: {**there.get(name, first), **variables} for name, variables in hosts.items()}
        path = tmp_path_factory.mktemp("fleet") / "fleet.yml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    return write


BUFFERS = "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem"
ARTICLE = {"nodectl_tuning": "article-20g", "nodectl_nccl_env": {"NCCL_IB_HCA": "=mlx5_0"}}
SETTINGS = ("--tags", "kernel_settings", "--tags", "nccl_env")


@dataclass(frozen=True)
class Course:
    """One host is provisioned: node03, with a file of its own, and with the article's values."""

    inventory: str
    buffers: str
    kept_runs: str
    run: dict[str, Any]
    said: str
    sockets: list[Path]


@pytest.fixture(scope="module")
def course(provision: Provision, fleet: Callable[..., str], lab4: Any) -> Course:
    """The first run of everything, which several tests look at."""
    lab4.ssh("node03", "echo NCCL_IB_TIMEOUT=23 > /etc/nccl.conf")
    lab4.ssh("node03", "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'")
    buffers = lab4.ssh("node03", BUFFERS)
    inventory = fleet(node03=ARTICLE)

    # a folder of its own, short enough for a socket's path: the machine's may hold those of another run
    with tempfile.TemporaryDirectory(dir="/tmp") as own:
        status, run, said = provision(inventory=inventory, TMPDIR=own)
        sockets = [path for path in Path(own).rglob("*") if path.is_socket()]
    assert status == 0, said
    saved = lab4.ssh("node03", f"cat /var/lib/nodectl/runs/{run['run']}/files/*")
    return Course(inventory, buffers, saved, run, said, sockets)


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_a_run_keeps_what_is_not_nodectls_and_a_second_one_changes_nothing(
    provision: Provision, course: Course, lab4: Any, cli_env: Any
) -> None:
    assert "NCCL_IB_TIMEOUT=23" in course.kept_runs.splitlines()
    assert "NCCL_IB_TIMEOUT" not in lab4.ssh("node03", "cat /etc/nccl.conf")
    assert not course.sockets, "sockets of ssh"
    folder = Path(cli_env["XDG_STATE_HOME"]) / "nodectl" / "runs" / "artifacts" / course.run["run"]
    assert (folder / "stdout").exists() and not (folder / "command").exists()
    status, second, said = provision(inventory=course.inventory)
    assert status == 0 and course.run["schema"] == "nodectl.provision/1"
    assert {name: tally["changed"] for name, tally in second["hosts"].items()} == {"node03": 0}, said
    python = "/opt/nodectl/venv/bin/python"
    assert lab4.ssh("node03", f"{python} -c 'import torch; print(torch.__version__)'").startswith("2.13.0")
    program = """printf 'import os; print("waits", os.environ["OMP_WAIT_POLICY"])' > /tmp/waits.py"""
    assert "waits PASSIVE" in lab4.ssh("node03", f"{program} && /opt/nodectl/bin/nodectl-launch -- /tmp/waits.py")
    assert "limits_memlock: not settable on this host: root on this host cannot raise the limit from" in said


@pytest.mark.lab
@pytest.mark.timeout(600)
def test_the_articles_values_go_on_and_come_back_off(provision: Provision, course: Course, lab4: Any) -> None:
    said = course.said
    assert lab4.ssh("node03", "sysctl -n net.ipv4.tcp_rmem").split() == ["4096", "131072", "16777216"]
    assert "net.ipv4.tcp_rmem: kept at 4096 131072 16777216" in said
    assert "net.core.rmem_max: not settable on this host" in said
    assert "NCCL_ALGO, NCCL_PROTO: of NCCL's debugging class" in said
    shown = lab4.ssh("node03", "/opt/nodectl/bin/nodectl-launch --print-env; cat /etc/nccl.conf")
    assert "NCCL_ALGO=ring,tree;allreduce:tree\n" in shown and "NCCL_IB_HCA==mlx5_0\n" in shown

    status, _, said = provision(*SETTINGS, "--limit", "node03")
    assert status == 0, said
    assert lab4.ssh("node03", BUFFERS) == course.buffers
    assert lab4.ssh("node03", "ls /etc/sysctl.d/90-nodectl.conf").endswith("No such file or directory")
    assert "NCCL_ALGO" not in lab4.ssh("node03", "cat /etc/nccl.conf")
    assert "none set" in lab4.ssh("node03", "/opt/nodectl/bin/nodectl-launch --print-env")


@pytest.mark.lab
def test_what_cannot_be_is_refused_once_before_anything_changes(
    provision: Provision, fleet: Callable[..., str], lab4: Any
) -> None:
    mark = "find /etc /opt -newer /tmp/mark -not -type d | head"
    lab4.ssh("node01", "touch /tmp/mark")
    slip = {"nodectl_tuning": "artcle-20g"}
    wrong = {
        "node01": slip,
        "node02": slip,
        "node03": {"nodectl_overrides": {"sysctl": {"net.core.x": {"vlaue": 1}}}},
        "node04": {"nodectl_nccl_env": {"NCCL_ALGO": "Tree"}},
        "other": {"kernel_settings_fille": "/etc/sysctl.d/x.conf", "python_version": "my own"},
    }
    status, document, said = provision(inventory=fleet(**wrong))
    for words in (
        "no tuning profile 'artcle-20g'. did you mean article-20g?",
        "sysctl.net.core.x.vlaue: no such field",
        "NCCL_ALGO: of NCCL's debugging class",
        "kernel_settings_fille is no variable of nodectl's: kernel_settings_file is one",
    ):
        assert status == 1 and said.count(words) == 1, said
    assert {name: (t["failed"], t["changed"]) for name, t in document["hosts"].items()} == dict.fromkeys(wrong, (1, 0))
    assert lab4.ssh("node01", mark) == ""


@pytest.mark.lab
@pytest.mark.slow
def test_what_no_repository_and_no_index_has_is_refused_before_anything_changes(
    provision: Provision, fleet: Callable[..., str], lab4: Any
) -> None:
    """A new version of numpy, and a package for RDMA: both would be asked for long after the first change."""
    mark = "find /etc /opt /var/lib/nodectl -newer /tmp/mark -not -type d | head"
    lab4.ssh("node03", "touch /tmp/mark")
    # wheels of the hosts' own are looked up by the hosts, when they install them
    numpy = {"nodectl_overrides": {"stack": {"packages": {"numpy": "2.2.99"}}}, "nodectl_wheelhouse": ""}
    rdma = {"rdma_soft_roce": ["eth0"], "rdma_packages": ["perftest-of-nowhere"]}
    status, document, said = provision("--tags", "limits,pytorch,rdma", inventory=fleet(node03=numpy, node04=rdma))
    assert status == 1, said
    assert "uv could not resolve" in said and "numpy==2.2.99" in said, said
    assert "rdma: no repository of this host has perftest-of-nowhere: nothing was changed" in said
    assert {host: tally["changed"] for host, tally in document["hosts"].items()} == {"node03": 0, "node04": 0}
    assert lab4.ssh("node03", mark) == ""


@pytest.mark.lab
@pytest.mark.slow
def test_an_unreachable_host_does_not_hold_up_the_others(
    provision: Provision, fleet: Callable[..., str], lab4: Any
) -> None:
    nobody_listens = {"ansible_port": 9}
    status, answer, said = provision(*SETTINGS, inventory=fleet(node01={}, node02=nobody_listens))
    assert status == 3, said
    assert answer["hosts"]["node02"]["unreachable"] == 1 and answer["hosts"]["node01"]["unreachable"] == 0
    assert answer["hosts"]["node01"]["ok"] > 3 and answer["hosts"]["node01"]["failed"] == 0
    assert "node02: unreachable" in said and "refused" in said


@pytest.mark.lab
@pytest.mark.slow
def test_a_check_shows_what_would_be_written_and_writes_nothing(
    provision: Provision, fleet: Callable[..., str], lab4: Any
) -> None:
    lab4.ssh("node02", "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'")
    before = lab4.ssh("node02", BUFFERS)
    status, checked, said = provision(*SETTINGS, "--check", "--diff", inventory=fleet(node02=ARTICLE))
    assert status == 0 and checked["hosts"]["node02"]["changed"] == 2 and "+NCCL_ALGO=ring,tree;allreduce:tree" in said
    assert lab4.ssh("node02", BUFFERS) == before

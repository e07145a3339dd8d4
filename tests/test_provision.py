"""Provisioning: Ansible's events as values, and real runs on the lab."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir
from nodectl.provision.events import HostTally, ProvisionRun, failure_text, read_event, read_tallies, report_text

ARTICLE_KEYS = {"nodectl_tuning": "article-20g"}


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
    ],
)
def test_why_a_task_failed_is_found_in_whichever_field(result: Mapping[str, Any], text: str) -> None:
    assert failure_text(result) == text


def test_events_become_values() -> None:
    data = {"host": "n1", "task": "Write", "role": "r", "task_action": "template", "res": {"changed": True}}
    event = read_event("runner_on_ok", data, "changed: [n1]")
    assert event is not None and (event.host, event.task, event.outcome) == ("n1", "r: Write", "changed")
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
    assert "has no nodectl" in said and "install it there" in said
    assert said.count("TASK [") <= 2 and "changed=0" in said, "before anything changes"


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


@pytest.fixture
def fleet(lab4: Any, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`fleet(hosts…, variable=value…)`: an inventory of these lab hosts with variables of their own."""

    def write(*hosts: str, **variables: Any) -> str:
        document = yaml.safe_load(Path(lab4.inventory).read_text())
        group = document["all"]["children"]["lab"]
        group["hosts"] = {name: group["hosts"][name] for name in hosts}
        group["vars"] |= variables
        path = tmp_path / "fleet.yml"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    yield write


@pytest.mark.lab
def test_a_second_run_changes_nothing_on_any_host(provision: Provision, lab4: Any) -> None:
    status, first, said = provision()
    assert status == 0, said
    status, second, said = provision()
    assert status == 0 and first["schema"] == "nodectl.provision/1"
    assert {name: tally["changed"] for name, tally in second["hosts"].items()} == dict.fromkeys(lab4.hosts, 0), said
    python = "/opt/nodectl/venv/bin/python"
    assert lab4.ssh("node01", f"{python} -c 'import torch; print(torch.__version__)'").startswith("2.13.0")
    assert "none set" in lab4.ssh("node02", "/opt/nodectl/bin/nodectl-launch --print-env")
    program = """printf 'import os; print("waits", os.environ["OMP_WAIT_POLICY"])' > /tmp/waits.py"""
    assert "waits PASSIVE" in lab4.ssh("node02", f"{program} && /opt/nodectl/bin/nodectl-launch -- /tmp/waits.py")
    assert "limits: memlock: not settable on this host" in said and "expected unlimited" in said


@pytest.mark.lab
def test_the_articles_values_go_on_and_come_back_off(
    provision: Provision, fleet: Callable[..., str], lab4: Any
) -> None:
    lab4.ssh("node03", "sysctl -w net.ipv4.tcp_rmem='4096 131072 6291456'")
    before = lab4.ssh("node03", "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem")
    article = fleet("node03", nodectl_tuning="article-20g", nodectl_nccl_env={"NCCL_IB_HCA": "=mlx5_0"})
    only = ("--tags", "kernel_settings", "--tags", "nccl_env")

    status, checked, said = provision(*only, "--check", "--diff", inventory=article)
    assert status == 0 and checked["hosts"]["node03"]["changed"] == 2 and "+NCCL_ALGO=ring,tree;allreduce:tree" in said
    assert lab4.ssh("node03", "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem") == before

    status, _, said = provision(*only, inventory=article)
    assert status == 0, said
    assert lab4.ssh("node03", "sysctl -n net.ipv4.tcp_rmem").split() == ["4096", "131072", "16777216"]
    assert "net.ipv4.tcp_rmem: kept at 4096 131072 16777216" in said
    assert "net.core.rmem_max: not settable on this host" in said
    assert "NCCL_ALGO, NCCL_PROTO: of NCCL's debugging class" in said
    shown = lab4.ssh("node03", "/opt/nodectl/bin/nodectl-launch --print-env; cat /etc/nccl.conf")
    assert "NCCL_ALGO=ring,tree;allreduce:tree\n" in shown and "NCCL_IB_HCA==mlx5_0\n" in shown

    _, again, _ = provision(*only, inventory=article)
    assert again["hosts"]["node03"]["changed"] == 0

    status, _, said = provision(*only, inventory=fleet("node03"))
    assert status == 0, said
    assert lab4.ssh("node03", "sysctl net.ipv4.tcp_rmem net.ipv4.tcp_wmem") == before
    assert lab4.ssh("node03", "ls /etc/sysctl.d/90-nodectl.conf").endswith("No such file or directory")
    assert "NCCL_ALGO" not in lab4.ssh("node03", "cat /etc/nccl.conf")


@pytest.mark.lab
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"nodectl_tuning": "artcle-20g"}, "no tuning profile 'artcle-20g'. did you mean article-20g?"),
        ({"nodectl_overrides": {"sysctl": {"net.core.x": {"vlaue": 1}}}}, "sysctl.net.core.x.vlaue: no such field"),
        ({"nodectl_nccl_env": {"NCCL_ALGO": "Tree"}}, "NCCL_ALGO: of NCCL's debugging class"),
    ],
)
def test_what_cannot_be_is_refused_once_before_anything_changes(
    provision: Provision, fleet: Callable[..., str], lab4: Any, variables: dict[str, Any], words: str
) -> None:
    mark = "find /etc /opt -newer /tmp/mark -not -type d | head"
    lab4.ssh("node01", "touch /tmp/mark")
    status, document, said = provision(inventory=fleet("node01", "node02", **variables))
    assert status == 1 and said.count(words) == 1, said
    assert {name: (t["failed"], t["changed"]) for name, t in document["hosts"].items()} == {
        "node01": (1, 0),
        "node02": (1, 0),
    }
    assert lab4.ssh("node01", mark) == ""


@pytest.mark.lab
@pytest.mark.slow
def test_an_unreachable_host_does_not_hold_up_the_others(
    provision: Provision, fleet: Callable[..., str], lab4: Any
) -> None:
    path = Path(fleet("node01", "node02"))
    document = yaml.safe_load(path.read_text())
    document["all"]["children"]["lab"]["hosts"]["node02"]["ansible_port"] = 9  # nobody listens there
    path.write_text(yaml.safe_dump(document))
    status, answer, said = provision("--tags", "launcher", inventory=str(path))
    assert status == 3, said
    assert answer["hosts"]["node02"]["unreachable"] == 1 and answer["hosts"]["node01"]["unreachable"] == 0
    assert answer["hosts"]["node01"]["ok"] > 3 and answer["hosts"]["node01"]["failed"] == 0
    assert "node02: unreachable" in said and "refused" in said


@pytest.mark.lab
def test_a_file_that_is_not_nodectls_is_kept(provision: Provision, fleet: Callable[..., str], lab4: Any) -> None:
    lab4.ssh("node04", "echo NCCL_IB_TIMEOUT=23 > /etc/nccl.conf")
    status, _, said = provision("--tags", "nccl_env", inventory=fleet("node04"))
    assert status == 0, said
    assert lab4.ssh("node04", "cat /var/lib/nodectl/runs/2*/files/*") == "NCCL_IB_TIMEOUT=23"
    assert "NCCL_IB_TIMEOUT" not in lab4.ssh("node04", "cat /etc/nccl.conf")


@pytest.mark.lab
@pytest.mark.slow
def test_an_interpreter_that_has_no_wheels_is_refused_with_the_range(
    provision: Provision, fleet: Callable[..., str]
) -> None:
    narrow = {"stack": {"python": {"min": "3.13", "max": "3.13"}}}
    status, _, said = provision("--tags", "pytorch", inventory=fleet("node01", nodectl_overrides=narrow))
    assert status == 1 and "the stack's wheels exist for 3.13 to 3.13" in said


@pytest.mark.lab
def test_a_run_leaves_no_environment_and_no_connection(provision: Provision, lab4: Any, cli_env: Any) -> None:
    # a folder of its own, short enough for a socket's path: the machine's may hold those of another run
    with tempfile.TemporaryDirectory(dir="/tmp") as own:
        status, document, said = provision("--tags", "launcher", "--limit", "node01", TMPDIR=own)
        assert not [path for path in Path(own).rglob("*") if path.is_socket()], "sockets of ssh"
    assert status == 0, said
    folder = Path(cli_env["XDG_STATE_HOME"]) / "nodectl" / "runs" / "artifacts" / document["run"]
    assert (folder / "stdout").exists() and not (folder / "command").exists()
    assert list(document["hosts"]) == ["node01"]


def test_a_slip_in_a_variables_name_is_refused_before_any_change(
    provision: Provision, fleet: Callable[..., str]
) -> None:
    inventory = fleet("node01", kernel_settings_fille="/etc/sysctl.d/x.conf", python_version="my own")
    status, document, said = provision("--tags", "limits", inventory=inventory)
    assert status == 1 and document["hosts"]["node01"]["changed"] == 0
    assert "kernel_settings_fille is no variable of nodectl's: kernel_settings_file is one" in said

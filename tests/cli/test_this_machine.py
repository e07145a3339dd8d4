"""Without an inventory nodectl means this machine: as who types it, in an empty folder, without root, sshd or files."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.common.access import Access
from nodectl.errors import InventoryError
from nodectl.payload.common import machine
from nodectl.transport.inventory import Here
from nodectl.transport.inventory.here import environment, inventory_of_here, only_here
from nodectl.transport.inventory.read import Inventory
from tests import warm_cli
from tests.conftest import Cli
from tests.torch_venv import torch_venv

Typed = Callable[..., subprocess.CompletedProcess[str]]
_TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
ranks = torch.ones(1)
dist.all_reduce(ranks)
print("ranks", int(ranks), "uid", os.getuid(), os.environ.get("MINE"), flush=True)
dist.destroy_process_group()
"""
# a login that is not root: its own files are ours, so that Python and the checkout can be read
_PLAIN = ("unshare", "--user", "--map-user=4242", "--map-group=4242")


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """nodectl in an empty folder, with PATH, a home and what Python needs to find it in its environment."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "home").mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path / "empty")
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")}

    def run(*args: str, become: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
        if not become:
            return Cli({**plain, **warm_cli.usual()})(*args, check=False, timeout=240, input="", env=more)
        return subprocess.run(
            [*become, sys.executable, "-m", "nodectl", *args],
            env={**plain, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


@pytest.mark.parametrize("name", ["", "::1", socket.gethostname()])
def test_its_names(typed: Typed, name: str) -> None:
    for words in ({(), ("-l", name)} if name else {()}) | ({("-i", f"{name},"), ("-i", name)} if name else set()):
        # one of them as a shell starts it, without a word about Python in the environment
        done = typed(*words, "facts", "--output", "json", become=() if name else ("env",))
        assert list(json.loads(done.stdout)["hosts"]) == ["localhost"], done.stderr
        (line,) = (line for line in done.stderr.splitlines() if line.startswith("this machine: "))
        assert line.endswith("; no inventory given") == ("-i" not in words)
    assert list(Path.cwd().iterdir()) == []


def test_a_folder_of_another_login(typed: Typed, tmp_path: Path) -> None:
    if os.geteuid() != 0 or subprocess.run([*_PLAIN, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs root, and user namespaces")
    Path.cwd().chmod(0)
    os.chown(Path.cwd(), 4343, 4343)
    done = typed("facts", "--output", "json", become=_PLAIN)
    assert list(json.loads(done.stdout)["hosts"]) == ["localhost"], done.stderr


def test_an_inventory_wins_and_one_that_is_not_there_is_an_error(typed: Typed) -> None:
    assert typed("-i", "absent.yml", "facts").returncode == 2
    assert typed("facts", ANSIBLE_INVENTORY="/absent.yml").returncode == 2
    Path("hosts.yml").write_text("all: {hosts: {other: {ansible_connection: local}}}\n")
    Path("ansible.cfg").write_text("[defaults]\ninventory = hosts.yml\n")
    for words, env in (((), {}), (("-i", "hosts.yml"), {}), ((), {"ANSIBLE_INVENTORY": "hosts.yml"})):
        done = typed(*words, "facts", "--output", "json", **env)
        assert list(json.loads(done.stdout)["hosts"]) == ["other"] and "this machine" not in done.stderr


def test_the_example_of_the_source_tree_counts_once_it_is_edited(typed: Typed) -> None:
    for name in ("ansible.cfg", "inventory/hosts.yml"):
        Path(name).parent.mkdir(exist_ok=True)
        shutil.copy(Path(__file__).parents[2] / name, name)
    done = typed("facts", "--output", "json")
    assert list(json.loads(done.stdout)["hosts"]) == ["localhost"], done.stderr
    hosts = Path("inventory/hosts.yml")
    hosts.write_text(hosts.read_text().replace("        node01:\n", "        mine: {ansible_connection: local}\n"))
    done = typed("-l", "mine", "facts", "--output", "json")
    assert list(json.loads(done.stdout)["hosts"]) == ["mine"], done.stderr


def test_without_sh_that_is_said(typed: Typed) -> None:
    Path("train.py").touch()
    for words in (("health",), ("facts",), ("launch", "train.py")):
        done = typed(*words, PATH="")
        assert done.returncode == 3 and "sh is not on PATH" in done.stdout + done.stderr
        assert "SSH" not in done.stdout + done.stderr


def test_a_look_needs_no_state(typed: Typed, tmp_path: Path) -> None:
    if subprocess.run([*_PLAIN, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel gives this login no user namespace")
    (tmp_path / "home").chmod(0o500)
    (tmp_path / "tmp").mkdir()
    for command in ("health", "facts", "topology"):
        done = typed(command, "--output", "json", become=_PLAIN, TMPDIR=str(tmp_path / "tmp"))
        assert "localhost" in json.dumps(json.loads(done.stdout)), done.stderr
        assert done.stderr.count("warning: ") == 1 and str(tmp_path / "home") in done.stderr
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("status", [0, 6])
def test_a_driver_without_a_device_is_told_once(typed: Typed, tmp_path: Path, status: int) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\necho No devices were found\nexit {status}\n")
    smi.chmod(0o755)
    done = typed("health", "--output", "json", PATH=f"{tmp_path}:{os.environ['PATH']}")
    findings = [one for one in json.loads(done.stdout)["findings"] if "nvidia-smi" in one["actual"]]
    assert [(one["check"], one["status"], one["actual"]) for one in findings] == [
        ("gpus", "warning", "nvidia-smi finds no device")
    ]


def test_it_is_what_ansible_would_read_and_anything_that_ansible_reads_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    quick, read = Here(), Inventory.read([inventory_of_here()])
    for limit in (None, "all", "::1"):
        (ours,), (theirs,) = quick.hosts(limit), read.hosts(limit)
        assert ours.variables == {name: theirs.variables[name] for name in ours.variables}
        assert replace(ours, variables={}) == replace(theirs, variables={})
    assert (quick.sources, quick.names()) == (read.sources, read.names())
    with pytest.raises(InventoryError, match="matches 'other'"):
        quick.hosts("other")
    assert only_here((), Access()) and only_here(["localhost,"], None)
    assert not only_here(["localhost,other"], None) and not only_here((), Access(extra_vars=("a=b",)))
    for said in (tmp_path / "ansible.cfg", tmp_path / "group_vars", tmp_path / "state/nodectl/this-machine/host_vars"):
        said.touch()
        assert not only_here((), None)
        said.unlink()
    monkeypatch.setenv("ANSIBLE_INVENTORY", "/absent")
    assert not only_here((), None)


def test_an_inventory_of_it(typed: Typed) -> None:
    done = typed("init", "fleet", "--from", "::1")
    assert done.returncode == 0, done.stderr
    done = typed("-i", "fleet/hosts.yml", "exec", "--output", "json", "--", "true")
    assert [row["host"] for row in json.loads(done.stdout)["results"]] == ["::1"]


def test_a_script_without_root_and_without_provisioning(typed: Typed) -> None:
    venv = torch_venv()
    if subprocess.run([*_PLAIN, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel gives this login no user namespace")
    Path("train.py").write_text(_TRAIN)
    done = typed("launch", "train.py", become=_PLAIN, VIRTUAL_ENV=venv, MINE="kept")
    assert done.returncode == 0, done.stderr
    assert "ranks 1 uid 4242 kept" in done.stdout + done.stderr
    assert typed("jobs", "list", become=_PLAIN).stdout.count("finished") == 1
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["train.py"]


def test_a_job_goes_on_where_nobody_reads_what_it_prints(typed: Typed) -> None:
    cut = ("bash", "-c", 'set -o pipefail; "$@" | true', "bash")
    done = typed("launch", "--engine", "command", "--", "sh", "-c", "echo one; sleep 1; echo two", become=cut)
    assert done.returncode == 141 and "jobs attach" in done.stderr, done.stderr
    assert "two" in typed("jobs", "logs", "-f", "last").stdout


def test_an_environment_without_torch_is_told_before_the_start(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "bare" / "bin").mkdir(parents=True)
    Path("train.py").write_text(_TRAIN)
    done = typed("launch", "train.py", VIRTUAL_ENV=str(tmp_path / "bare"), ANSIBLE_HOME=str(tmp_path))
    assert done.returncode == 1 and f"{tmp_path / 'bare'} with torch" in done.stderr and "--venv" in done.stderr
    assert "activate" in done.stderr


def test_a_trial_measures_what_one_host_can_answer(typed: Typed) -> None:
    words = ("tune", "trial", "--profiles", "stock,article-20g")
    done = typed(*words)
    assert done.returncode == 2 and "measured: memory, training;" in done.stderr
    done = typed(*words, "--probes", "tcp", "--yes")
    assert done.returncode == 2 and "between hosts" in done.stderr and "measured:" not in done.stderr


@pytest.mark.parametrize(
    "words",
    ["tune trial --profiles stock,article-20g --yes", "provision --yes", "rollback --yes", "rollback --list"],
)
def test_what_needs_root_is_told_before_the_start(typed: Typed, words: str) -> None:
    if subprocess.run([*_PLAIN, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel gives this login no user namespace")
    done = typed(*words.split(), become=_PLAIN)
    assert done.returncode == 2 and "needs root" in done.stderr and f"nodectl {words}" in done.stderr
    state = Path.cwd().parent / "home" / ".local/state/nodectl"
    assert not (state / "runs").exists() and not (state / "trials").exists()


def test_what_only_root_sees_is_told_once(typed: Typed) -> None:
    if subprocess.run([*_PLAIN, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this kernel gives this login no user namespace")
    for words in (("record", "taken"), ("accept", "--level", "quick", "--dry-run")):
        assert typed(*words, become=_PLAIN).stderr.count("nodectl sudoers") == 1
    if os.geteuid() == 0:
        assert "nodectl sudoers" not in typed("record", "again").stderr


def _fake(place: Path) -> Path:
    for name in ("python", "torchrun"):
        path = place / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    return place


def test_which_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "project" / "code"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setenv("PATH", "/absent")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nodectl"))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    on_path = _fake(tmp_path / "on-path")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert environment() == str(on_path)
    project = _fake(tmp_path / "project" / ".venv")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)  # nodectl's own, as its installation has it activated
    assert environment() == str(project)
    if os.geteuid() == 0:
        os.chown(project, 4242, 4242)
        assert environment() == str(on_path)  # another login's is not run
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert environment() == str(tmp_path / "conda")


_TWO = "echo 'index, …\n0, NVIDIA A10, GPU-1, 0:1, 1 MiB, 570.1, 9\n1, NVIDIA A10, GPU-2, 0:2, 1 MiB, 570.1, 9'"


@pytest.mark.parametrize(
    ("models", "smi", "vendor", "expected"),
    [
        (["NVIDIA GeForce RTX 4090"] * 3, None, "", "3 x RTX 4090, driver 580.95.05,"),
        (["NVIDIA H100 80GB HBM3", "NVIDIA A10"], None, "", "1 x H100 80GB HBM3 + 1 x A10, driver 580.95.05,"),
        ([], _TWO, "", "2 x A10, driver 580.95.05,"),
        ([], None, "0x10de", "1 NVIDIA GPU and no driver that lists them,"),
        ([], "exec /bin/sleep 60", "", "no NVIDIA GPU,"),
    ],
)
def test_the_line_of_a_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[str], smi: str | None, vendor: str, expected: str
) -> None:
    proc, pci = tmp_path / "proc", tmp_path / "pci"
    for number, model in enumerate(models):
        (proc / "gpus" / str(number)).mkdir(parents=True)
        (proc / "gpus" / str(number) / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
    proc.mkdir(exist_ok=True)
    (proc / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\n")
    (pci / "0000:01:00.0").mkdir(parents=True)
    (pci / "0000:01:00.0" / "vendor").write_text(f"{vendor}\n")
    (pci / "0000:01:00.0" / "class").write_text("0x030200\n")
    monkeypatch.setattr(machine, "_PROC_NVIDIA", proc)
    monkeypatch.setattr(machine, "PCI", pci)
    monkeypatch.setattr(machine, "_FIRST_LINE_S", 0.2 if smi and "sleep" in smi else 30)
    monkeypatch.setenv("PATH", str(tmp_path))
    if smi:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    assert machine.describe().startswith(expected)

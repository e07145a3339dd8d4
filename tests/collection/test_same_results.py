"""Each promised ansible-core, from each kind of inventory: the same hosts come out.

    .venv/bin/pytest tests/collection/test_same_results.py

One fleet has all ways to a host at once: `node01` is reached directly, on `node02` the login needs a password for sudo
(-K), `node03` lies behind a jump host, and all of them want a value that only the vault has.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collection.conftest import ENDS, Controller, controller_of, environment_of
from tests.conftest import Cli, LabUnderTest
from tests.node_snapshot import compare

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(1800)]

CORES = ("oldest", "own", "newest")
INVENTORIES = ("plain", "script", "constructed")
HOSTS, JUMP = ("node01", "node02", "node03"), "node04"
SUDO_PASSWORD, VAULT_PASSWORD = "sudo's \"1 wörd", "vault's secret"
TAGS = ("--tags", "limits,kernel_settings,nccl_env")
_SNAPSHOT = Path(__file__).parent.parent / "node_snapshot.py"
_FREE = re.compile(r"\d+ MiB")  # of a disk that all hosts of the machine share


@dataclass(frozen=True, slots=True)
class Operator:
    """One ansible-core, and the inventories of the fleet."""

    controller: Controller
    lab: LabUnderTest
    folder: Path

    def nodectl(self, inventory: str, *argv: str) -> dict[str, Any]:
        """The JSON document of `nodectl`, run by this ansible-core; its standard error is `said`."""
        done = self._run("python", "-m", "nodectl", "-i", inventory, "--output", "json", "-K", *self._vault, *argv)
        return {**json.loads(done.stdout), "said": done.stderr}

    def playbook(self, inventory: str, name: str, *argv: str) -> str:
        """What plain `ansible-playbook nodectl.fleet.NAME` says."""
        done = self._run("ansible-playbook", "-i", inventory, "-K", *self._vault, f"nodectl.fleet.{name}", *argv)
        return done.stdout

    @property
    def _vault(self) -> tuple[str, str]:
        return "--vault-password-file", str(self.folder / "vault-password")

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        typed = f"{SUDO_PASSWORD}\n"
        done = self.controller.attempt(self.folder, *argv, package=True, input=typed)
        assert done.returncode == 0, f"{argv} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert SUDO_PASSWORD not in done.stdout + done.stderr and VAULT_PASSWORD not in done.stdout + done.stderr
        return done


@pytest.fixture(scope="module")
def fleet_lab(nodectl: Cli, lab_machine: None) -> Iterator[LabUnderTest]:
    """Three hosts and the one that stands before the third; `ops` on the second has a password."""
    with nodectl.lab(f"same-{os.getpid()}", 4) as lab:
        lab.ssh("node02", "useradd -m -s /bin/bash ops && install -d -o ops -m 700 ~ops/.ssh")
        lab.ssh("node02", "install -o ops -m 600 ~/.ssh/authorized_keys ~ops/.ssh/")
        argv = ["ssh", "-F", lab.ssh_config, "node02", "chpasswd; echo 'ops ALL=(ALL) ALL' > /etc/sudoers.d/ops"]
        subprocess.run(argv, input=f"ops:{SUDO_PASSWORD}\n", text=True, check=True, capture_output=True)
        yield lab


@pytest.fixture(scope="module", params=CORES)
def core(
    request: pytest.FixtureRequest, artifact: Path, cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Controller]:
    """Both ends of the promise, and the one that the checkout itself has."""
    programs = Path(sys.executable).parent
    if request.param != "own":
        programs = environment_of(ENDS[request.param], Path(cli_env["XDG_CACHE_HOME"]) / "nodectl") / "bin"
    return request.param, controller_of(programs, artifact, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def inventories(fleet_lab: LabUnderTest, core: tuple[str, Controller], tmp_path: Path) -> Mapping[str, str]:
    """The same fleet by each of the three, each in a folder of its own with a vaulted variable of the group."""
    (tmp_path / "vault-password").write_text(f"{VAULT_PASSWORD}\n")
    argv = ("ansible-vault", "encrypt_string", "--vault-password-file", "vault-password", "22")
    secret = core[1].attempt(tmp_path, *argv).stdout
    written = _plain(fleet_lab), _script(fleet_lab), _constructed(fleet_lab)
    for name, files in zip(INVENTORIES, written, strict=True):
        folder = tmp_path / name
        (folder / "group_vars").mkdir(parents=True)
        (folder / "group_vars" / "fleet.yml").write_text(f"nodectl_nccl_env:\n  NCCL_IB_TIMEOUT: {secret}")
        for file, text in files.items():
            (folder / file).write_text(text)
            (folder / file).chmod(0o755 if text.startswith("#!") else 0o644)
    hosts = {"plain": "hosts.yml", "script": "hosts"}
    return {name: str(tmp_path / name / hosts.get(name, "")) for name in INVENTORIES}


def _hosts(lab: LabUnderTest) -> dict[str, dict[str, Any]]:
    """{host: its variables}, the lab's own and each one's way in."""
    group = yaml.safe_load(Path(lab.inventory).read_text())["all"]["children"]["lab"]
    profiles = {"nodectl_stack": "none", "nodectl_tuning": "article-20g"}
    hosts = {name: {**group["vars"], **group["hosts"][name], **profiles} for name in HOSTS}
    hosts["node02"]["ansible_user"] = "ops"
    hosts["node03"]["ansible_ssh_common_args"] += f" -F {lab.ssh_config} -o ProxyJump={JUMP}"
    return hosts


def _plain(lab: LabUnderTest) -> dict[str, str]:
    return {"hosts.yml": yaml.safe_dump({"all": {"children": {"fleet": {"hosts": _hosts(lab)}}}})}


def _script(lab: LabUnderTest) -> dict[str, str]:
    answer = {"fleet": {"hosts": list(HOSTS)}, "_meta": {"hostvars": _hosts(lab)}}
    return {"hosts": f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n"}


def _constructed(lab: LabUnderTest) -> dict[str, str]:
    """The group and the tuning come out of what the source says of each host."""
    hosts = {name: {**variables, "link": "20g"} for name, variables in _hosts(lab).items()}
    for variables in hosts.values():
        del variables["nodectl_tuning"]
    rules = {
        "plugin": "ansible.builtin.constructed",
        "strict": True,
        "compose": {"nodectl_tuning": "'article-' ~ link"},
        "groups": {"fleet": "nodectl_lab"},
    }
    return {"1-hosts.yml": yaml.safe_dump({"all": {"hosts": hosts}}), "2-rules.yml": yaml.safe_dump(rules)}


@dataclass(slots=True)
class Outcomes:
    """What the first combination gave; all others give the same."""

    first: dict[str, Any] = field(default_factory=dict)

    def same(self, name: str, value: Any) -> None:
        """Fails where `value` is another one."""
        assert value == self.first.setdefault(name, value), name


@pytest.fixture(scope="module")
def outcomes() -> Outcomes:
    return Outcomes()


@pytest.fixture
def snapshot(fleet_lab: LabUnderTest) -> Callable[[], dict[str, dict[str, str]]]:
    """Each host's files and kernel values, read by a script that knows nothing of nodectl."""

    def take() -> dict[str, dict[str, str]]:
        taken = {}
        for host in HOSTS:
            argv = ["ssh", "-F", fleet_lab.ssh_config, host, "python3 - take"]
            done = subprocess.run(argv, input=_SNAPSHOT.read_text(), capture_output=True, text=True, check=True)
            taken[host] = json.loads(done.stdout)
        return taken

    return take


def test_the_same_hosts_come_out(
    core: tuple[str, Controller],
    fleet_lab: LabUnderTest,
    inventories: Mapping[str, str],
    outcomes: Outcomes,
    snapshot: Callable[[], dict[str, dict[str, str]]],
    tmp_path: Path,
) -> None:
    name, controller = core
    operator = Operator(controller, fleet_lab, tmp_path)
    # each of the three steps meets each kind of inventory, over all combinations
    turn = CORES.index(name)
    first, second, third = (inventories[INVENTORIES[(turn + step) % 3]] for step in range(3))
    before = snapshot()

    try:
        made = operator.nodectl(first, "provision", "--yes", *TAGS)
        outcomes.same("tallies", made["hosts"])
        outcomes.same("findings", sorted(json.dumps(found, sort_keys=True) for found in made["findings"]))
        outcomes.same("changed", sorted(line for line in made["said"].splitlines() if "  changed  " in line))
        provisioned = snapshot()
        assert all("NCCL_IB_TIMEOUT=22" in fleet_lab.ssh(host, "cat /etc/nccl.conf") for host in HOSTS)
        expected = outcomes.first.setdefault("hosts", provisioned)
        assert {host: compare(expected[host], provisioned[host]) for host in HOSTS} == {host: [] for host in HOSTS}

        again = operator.playbook(second, "site", *TAGS)
        assert again.count("changed=0 ") == len(HOSTS), again
        assert {
            tally["changed"] for tally in operator.nodectl(third, "provision", "--yes", *TAGS)["hosts"].values()
        } == {0}
        assert {host: compare(provisioned[host], snapshot()[host]) for host in HOSTS} == {host: [] for host in HOSTS}
        for inventory in inventories.values():
            _looks_the_same(operator, inventory, outcomes)
    finally:  # the next combination is to find the same hosts
        operator.playbook(second, "rollback")
    after = snapshot()
    assert {host: compare(before[host], after[host]) for host in HOSTS} == {host: [] for host in HOSTS}


def _looks_the_same(operator: Operator, inventory: str, outcomes: Outcomes) -> None:
    """exec, health and the TCP probe reach the same hosts by the same ways."""
    rows = operator.nodectl(inventory, "exec", "--", "sh", "-c", "id -un; set -- $SSH_CONNECTION; echo $1")["results"]
    outcomes.same("exec", sorted((row["host"], row["stdout"]) for row in rows))
    health = operator.nodectl(inventory, "health")["findings"]
    judged = ((found["host"], found["check"], found["status"], _FREE.sub("MiB", found["actual"])) for found in health)
    outcomes.same("health", sorted(judged))
    quick = ("--duration", "0.2", "--repetitions", "1", "--rounds", "2")
    measured = operator.nodectl(inventory, "probe", "tcp", *quick)["measurements"]
    # a busy machine has more pairs measured, and measured again
    outcomes.same("probe", sorted({(host, row["unit"]) for row in measured for host in row["hosts"]}))

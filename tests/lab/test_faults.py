"""Faults are real, are recorded, and are healed without a trace."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]


@pytest.fixture(scope="module")
def cli(cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    home = tmp_path_factory.mktemp("faults")
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(home), "XDG_CACHE_HOME": str(home)})
    yield cli
    cli("lab", "down")


@pytest.fixture(scope="module")
def disks(cli: Cli) -> LabUnderTest:
    """Two hosts with disks of 256 MiB."""
    inventory = cli("lab", "up", "-n", "2", "--disk", "256M").stdout.strip()
    status = json.loads(cli("lab", "status", "--output", "json").stdout)
    return LabUnderTest(inventory, status, ("node01", "node02"), status["ssh_config"])


def test_a_disk_is_bounded(disks: LabUnderTest) -> None:
    size_bytes = int(disks.ssh("node01", "df --output=size -B1 / | tail -1"))
    assert 0.8 * 256 * 2**20 < size_bytes <= 256 * 2**20
    assert "No space left" in disks.ssh("node01", "dd if=/dev/zero of=/var/big bs=1M count=400; rm /var/big")


def test_a_full_disk_is_full_and_costs_the_machine_nothing(cli: Cli, disks: LabUnderTest) -> None:
    image = Path(disks.inventory).parent / "hosts/node02/disk.img"
    before = image.stat().st_blocks
    cli("lab", "fault", "disk-full", "node02")
    assert "No space left" in disks.ssh("node02", "echo text > /root/file")
    assert disks.ssh("node01", "echo text > /root/file") == ""
    assert (image.stat().st_blocks - before) * 512 < 16 * 2**20
    cli("lab", "heal", "node02")
    assert disks.ssh("node02", "echo text > /root/file; cat /root/file") == "text"


def test_a_changed_host_key_is_refused_until_healed(cli: Cli, disks: LabUnderTest) -> None:
    cli("lab", "fault", "host-key", "node01")
    assert "IDENTIFICATION HAS CHANGED" in disks.ssh("node01", "true")
    assert disks.ssh("node02", "hostname") == "node02"
    cli("lab", "heal")
    assert disks.ssh("node01", "hostname") == "node01"


def test_healing_also_forgets_a_key_that_was_accepted(cli: Cli, disks: LabUnderTest) -> None:
    known_hosts = Path(disks.status["known_hosts"])
    before = sorted(known_hosts.read_text().splitlines())
    cli("lab", "fault", "host-key", "node01")
    address = disks.status["hosts"][0]["address"]
    shown = subprocess.run(["ssh-keyscan", "-t", "ed25519", address], capture_output=True, text=True, check=True).stdout
    assert shown.split()[2] not in known_hosts.read_text()
    known_hosts.write_text(f"{before[1]}\n{shown}")
    assert disks.ssh("node01", "hostname") == "node01"
    cli("lab", "heal", "node01")
    assert disks.ssh("node01", "hostname") == "node01"
    assert sorted(known_hosts.read_text().splitlines()) == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("remapfailure", "node01"), "did you mean remap-failure?"),
        (("remap-failure", "node01"), "lab up --as"),
    ],
)
def test_unknown_words_are_refused_with_the_known_ones(
    cli: Cli, disks: LabUnderTest, words: tuple[str, str], named: str
) -> None:
    refused = cli("lab", "fault", *words, check=False)
    assert refused.returncode == 2 and named in refused.stderr


def test_the_machines_own_disk_is_never_filled(cli: Cli) -> None:
    cli("lab", "up", "-n", "1", "--disk", "none", "--name", "unbounded")
    refused = cli("lab", "fault", "disk-full", "node01", "--name", "unbounded", check=False)
    cli("lab", "down", "--name", "unbounded")
    assert refused.returncode == 2 and "--disk" in refused.stderr


def test_hosts_have_bounded_disks_unless_told_otherwise(cli: Cli) -> None:
    cli("lab", "up", "-n", "1", "--name", "plain")
    cli("lab", "fault", "disk-full", "node01", "--name", "plain")
    again = cli("lab", "up", "-n", "1", "--name", "plain")
    other = cli("lab", "up", "-n", "1", "--disk", "none", "--name", "plain", check=False)
    cli("lab", "down", "--name", "plain")
    assert again.stdout.strip().endswith("inventory.yml")
    assert other.returncode == 2 and "lab down" in other.stderr


def test_the_files_work_with_ansible_and_ssh(disks: LabUnderTest, cli: Cli) -> None:
    listed = subprocess.run(
        ["ansible-inventory", "-i", disks.inventory, "--list"], capture_output=True, text=True, check=True, env=cli.env
    )
    found = json.loads(listed.stdout)
    assert found["lab"]["hosts"] == ["node01", "node02"]
    variables = found["_meta"]["hostvars"]["node02"]
    assert variables["ansible_host"] == disks.status["hosts"][1]["address"]
    assert (variables["nodectl_hardware"], variables["nodectl_stack"]) == ("lab-cpu", "cpu")

"""A small lab of these tests' own, whose hosts they change and put back, and each host's whole state as a value."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir
from tests.conftest import Cli, LabUnderTest
from tests.node_snapshot import compare, fenced

SNAPSHOT = Path(__file__).parent.parent / "node_snapshot.py"
EXCEPTIONS = fenced((share_dir() / "docs" / "rollback.md").read_text(), "exceptions")
FOLDERS = "/etc /opt /usr/local $(ls -d /var/lib/nodectl 2>/dev/null)"
TEMPORARY = f"find {FOLDERS} -name '.ansible_tmp*' -o -name '.nodectl-*' -o -name '*.partial'"


@dataclass(frozen=True, slots=True)
class Fleet:
    """A lab, an inventory of some of its hosts, and the command line on it."""

    lab: LabUnderTest
    cli: Cli
    inventory: str
    hosts: tuple[str, ...]

    def run(self, *argv: str, status: int = 0, input: str | None = None) -> dict[str, Any]:
        """The JSON document of a command that ended with `status`; `said` in it is its standard error."""
        done = self.cli("-i", self.inventory, "--output", "json", *argv, check=False, timeout=280, input=input)
        assert done.returncode == status, f"{argv} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        document: dict[str, Any] = json.loads(done.stdout or "{}")
        return {**document, "said": done.stderr}

    def changed(self, *argv: str) -> set[int]:
        """How many tasks changed something, on any of the hosts."""
        return {tally["changed"] for tally in self.run(*argv)["hosts"].values()}

    def snapshot(self) -> dict[str, dict[str, str]]:
        """Each host's state, by the script that runs there."""
        return {host: json.loads(self._script(host)) for host in self.hosts}

    def _script(self, host: str) -> str:
        argv = ["ssh", "-F", self.lab.ssh_config, host, "python3 - take"]
        done = subprocess.run(argv, input=SNAPSHOT.read_text(), capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def assert_as(self, before: dict[str, dict[str, str]]) -> None:
        """Each host is as it was, but for what docs/rollback.md names."""
        after = self.snapshot()
        differences = {host: compare(before[host], after[host], EXCEPTIONS) for host in self.hosts}
        assert not any(differences.values()), differences

    def assert_nothing_half_written(self) -> None:
        """No file that a killed process had not finished."""
        assert {host: self.lab.ssh(host, TEMPORARY) for host in self.hosts} == dict.fromkeys(self.hosts, "")


@pytest.fixture(scope="session")
def own_lab(nodectl: Cli, lab_machine: None) -> Iterator[LabUnderTest]:
    """Two hosts that no other test uses."""
    with nodectl.lab(f"back-{os.getpid()}", 2) as lab:
        yield lab


@pytest.fixture
def fleet(own_lab: LabUnderTest, nodectl: Cli, tmp_path: Path) -> Callable[..., Fleet]:
    """`fleet(hosts…, variable=value…)`: these lab hosts with variables of their own, as they were made."""
    if any("record.json" in own_lab.ssh(host, "ls /var/lib/nodectl/runs/*") for host in own_lab.hosts):
        # a test before this one failed half-way
        nodectl("-i", own_lab.inventory, "rollback", "--to", "start", "--packages", "--yes")

    def write(*hosts: str, **variables: Any) -> Fleet:
        document = yaml.safe_load(Path(own_lab.inventory).read_text())
        group = document["all"]["children"]["lab"]
        group["hosts"] = {name: group["hosts"][name] for name in hosts}
        group["vars"] |= variables
        path = tmp_path / "fleet.yml"
        path.write_text(yaml.safe_dump(document))
        return Fleet(own_lab, nodectl, str(path), hosts)

    return write

"""The playbooks of examples/playbooks as a site has them: by an installed wheel, with --check, for real, and again."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator

import pytest

from scripts.dist import ROOT
from tests.conftest import Cli, LabUnderTest
from tests.release.conftest import Built, Place, installed

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = ROOT / "examples" / "playbooks"
# what a host shows once the playbook has run; nothing where it changes nothing there
SHOWS = {
    "tuning": ("cat /proc/sys/net/ipv4/tcp_slow_start_after_idle /etc/nccl.conf", "0"),
    "profile": ("cat /etc/sysctl.d/90-nodectl.conf", "net.ipv4.tcp_rmem"),
    "probes": ("ls -A /var/lib/nodectl/runs", ""),
    # a lab's hosts have no systemd, and then the role leaves them alone; tests/booted has what it does with one
    "health-timer": ("ls -A /var/lib/nodectl/runs", ""),
}


@pytest.fixture(scope="module")
def two_hosts(nodectl: Cli, lab_machine: None) -> Iterator[LabUnderTest]:
    """A lab of its own: what the playbooks set there goes with it."""
    with nodectl.lab(f"playbooks-{os.getpid()}", 2) as lab:
        yield lab


@pytest.fixture(scope="module")
def site(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An operator of somebody else's: the wheel, and their own copy of the playbooks."""
    folder = tmp_path_factory.mktemp("site")
    place = installed(sys.executable, built.wheel, folder)
    shutil.copytree(EXAMPLES, folder / "cwd")
    return place


def test_every_playbook_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yml")} == {*SHOWS, "back"}


@pytest.mark.parametrize("name", SHOWS)
def test_a_playbook_changes_what_it_says_and_nothing_the_second_time(
    name: str, site: Place, two_hosts: LabUnderTest
) -> None:
    command, shown = SHOWS[name]
    before = two_hosts.ssh("node01", command)
    play = ("ansible-playbook", "-i", two_hosts.inventory, f"{name}.yml")
    would = _changed(site.run(*play, "--check"))
    assert two_hosts.ssh("node01", command) == before
    assert (_changed(site.run(*play)) > 0) == (would > 0) == bool(shown)
    assert shown in two_hosts.ssh("node01", command)
    assert _changed(site.run(*play)) == 0
    site.run("ansible-playbook", "-i", two_hosts.inventory, "back.yml")
    if name == "tuning":
        assert two_hosts.ssh("node01", command) == before


def _changed(said: str) -> int:
    """How many tasks changed something, over all hosts."""
    return sum(map(int, re.findall(r" changed=(\d+) ", said)))

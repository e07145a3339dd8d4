"""The hosts of a job in the order of their ranks."""

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.model.host import Host
from nodectl.topology.fabric.judge import in_rank_order
from tests.topology.fabrics import two_level

HOSTS = [Host(name, name) for name in ("node017", "node002", "elsewhere", "node018", "node001")]


def names(hosts: tuple[Host, ...]) -> list[str]:
    return [host.name for host in hosts]


def test_neighbours_of_the_fabric_come_together_and_nobody_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "fabric.txt"
    path.write_text(two_level(32).text())
    assert names(in_rank_order(HOSTS, path)) == ["node001", "node002", "node017", "node018", "elsewhere"]


def test_a_file_that_cannot_be_read_starts_no_job_in_a_wrong_order(tmp_path: Path) -> None:
    path = tmp_path / "fabric.txt"
    path.write_text("")
    with pytest.raises(ParseError, match=r"fabric\.txt"):
        in_rank_order(HOSTS, path)

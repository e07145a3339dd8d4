"""`nodectl probe --rounds`: a number or all, and not beside --pairs."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from nodectl.cli.probe import Rounds, probe
from nodectl.cli.root import cli

INVENTORY = "all: {hosts: {a: {ansible_host: 192.0.2.1}, b: {ansible_host: 192.0.2.2}}}\n"


@pytest.mark.parametrize(("given", "expected"), [("all", 0), ("1", 1), ("10", 10), (7, 7)])
def test_what_is_a_number_of_rounds(given: str | int, expected: int) -> None:
    assert Rounds().convert(given, None, None) == expected


@pytest.mark.parametrize("given", ["0", "-1", "ten", "1.5", "", "1e3"])
def test_what_is_none(given: str) -> None:
    done = CliRunner().invoke(probe, ["tcp", "--rounds", given])
    assert done.exit_code == 2
    assert "write 10, or all" in done.output


def test_not_beside_pairs(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY)
    done = CliRunner().invoke(cli, ["-i", str(inventory), "probe", "tcp", "--rounds", "3", "--pairs", "ring"])
    assert done.exit_code != 0
    assert "--pairs" in str(done.exception) + done.output

"""A file of nodectl/cli/ that is no command, or a broken one, is told by file and what is wrong with it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nodectl.cli
from nodectl.cli import root

RIGHT = '''\
"""`nodectl uptimes`: Show how long the hosts are up."""

import click


@click.command()
def uptimes() -> None:
    """Show how long the hosts are up."""
    click.echo("long")
'''


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Result]]:
    """Runs `nodectl uptimes` with this text beside nodectl's own commands."""
    monkeypatch.setattr(nodectl.cli, "__path__", [*nodectl.cli.__path__, str(tmp_path)])
    monkeypatch.setattr(root, "__file__", str(tmp_path / "root.py"))

    def written(text: str) -> Result:
        (tmp_path / "uptimes.py").write_text(text)
        root.commands.cache_clear()
        return CliRunner().invoke(root.cli, ["uptimes"])

    yield written
    sys.modules.pop("nodectl.cli.uptimes", None)
    root.commands.cache_clear()


@pytest.mark.parametrize("right", ['"""`nodectl uptimes`: Show', '"""`nodectl uptimes`: '])
def test_a_command_whose_first_line_does_not_say_so_is_named(run: Callable[[str], Result], right: str) -> None:
    done = run(RIGHT.replace(right, '"""'))
    assert done.exit_code == 2
    assert 'nodectl/cli/uptimes.py is one if its first line is """`nodectl uptimes`: What' in done.output

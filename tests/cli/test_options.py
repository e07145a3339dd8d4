"""Global options before and after a command's name, from the environment, and from nodectl.toml."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from nodectl.cli import root
from nodectl.cli.app import App


@click.group()
def group() -> None:
    pass


@group.command()
@click.option("--times", type=int, default=1)
@click.argument("argv", nargs=-1)
@click.pass_obj
def leaf(app: App, times: int, argv: tuple[str, ...]) -> None:
    click.echo(json.dumps([app.limit, app.output, list(app.inventory_sources), times, list(argv)]))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    module = ModuleType("nodectl.cli.group")
    module.group = group  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(root.commands(), "group", "Help.")
    monkeypatch.chdir(tmp_path)

    def run(*args: str, **env: str) -> Any:
        outcome = CliRunner(env=env).invoke(root.cli, args)
        assert outcome.exit_code == 0, outcome.output
        return json.loads(outcome.output)

    return run


def test_repeated_options_add_up_over_all_places_and_of_others_the_last_one_counts(seen: Any) -> None:
    places = ("-i", "a", "-l", "x", "group", "-i", "b", "-l", "y", "leaf", "-i", "c", "-l", "z")
    assert seen(*places, NODECTL_INVENTORY="d") == ["z", "table", ["a", "b", "c"], 1, []]
    assert seen("group", "leaf", "-i", "c", NODECTL_INVENTORY="d", NODECTL_LIMIT="x")[:3] == ["x", "table", ["c"]]


def test_another_inventory_leaves_nothing_of_the_settings_beside_the_first(
    seen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nodectl.toml").write_text('limit = "a"\noutput = "json"\n[group.leaf]\nlimit = "b"\n')
    monkeypatch.setenv("ANSIBLE_INVENTORY", "hosts")
    assert seen("group", "leaf")[:2] == ["b", "json"]
    assert seen("group", "leaf", "-i", "other/hosts") == [None, "table", ["other/hosts"], 1, []]
    assert seen("-l", "c", "group", "leaf")[0] == "c"


def test_words_after_a_double_dash_are_the_commands(seen: Any) -> None:
    assert seen("group", "leaf", "--", "-l", "gpu01") == [None, "table", [], 1, ["-l", "gpu01"]]


def test_flags_then_environment_then_settings(seen: Any, tmp_path: Path) -> None:
    (tmp_path / "nodectl.toml").write_text('limit = "settings"\n[group.leaf]\ntimes = 7\n')
    inventory = str(tmp_path / "hosts")
    assert seen("-i", inventory, "group", "leaf") == ["settings", "table", [inventory], 7, []]
    assert seen("group", "leaf", "-i", inventory)[3] == 7
    assert seen("-i", inventory, "group", "leaf", NODECTL_GROUP_LEAF_TIMES="8")[3] == 8
    assert seen("-i", inventory, "group", "leaf", "--times", "9", NODECTL_GROUP_LEAF_TIMES="8")[3] == 9
    assert seen("-i", inventory, "-l", "flag", "group", "leaf")[0] == "flag"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("forks = -1", "nodectl.toml: forks = -1: -1 is not in the range 1<=x<=1024."),
        ('output = "xml"', "nodectl.toml: output = 'xml': 'xml' is not one of"),
        ("[exec]\ntimeout = nan", "nan is not a time"),
        ("[exec]\ntimeot = 3", "nodectl.toml: [exec]: nothing reads timeot\n  try: did you mean timeout? correct"),
        ("[probe.tcp]\nstreams = 2\nstraems = 2", "[probe.tcp]: nothing reads straems"),
        ("[exce]\ntimeout = 3", "nodectl.toml: nothing reads exce"),
        ("limit = 7", "matches '7'"),
    ],
)
def test_a_setting_is_read_as_an_option_is(nodectl: Any, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "hosts").write_text("a ansible_connection=local\n")
    (tmp_path / "nodectl.toml").write_text(text)
    command = ["probe", "tcp"] if "probe" in text else ["exec", "--", "true"]
    done = nodectl("-i", str(tmp_path / "hosts"), *command, check=False)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_settings_that_cannot_be_read_are_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "nodectl.toml").write_text("limit = \n")
    outcome = CliRunner().invoke(root.cli, ["-i", str(tmp_path / "hosts"), "facts"])
    assert outcome.exit_code == 2
    assert "nodectl.toml" in outcome.output and "line 1" in outcome.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--output json health --one-line", "--one-line and --output json exclude each other"),
        ("health --output junit --list", "--list and --output junit exclude each other"),
        ("health --list --one-line", "--one-line and --list exclude each other"),
        ("--output junit facts", "nodectl facts has no --output junit; its forms are table, json"),
        ("--output json sudoers", "nodectl sudoers has no --output json; it prints text"),
        ("jobs --output json logs", "nodectl jobs logs has no --output json; it prints text"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_by_name(words: str, told: str) -> None:
    outcome = CliRunner().invoke(root.cli, words.split(), prog_name="nodectl")
    assert outcome.exit_code == 2 and told in outcome.output


def test_a_form_of_the_settings_holds_where_the_command_has_it() -> None:
    for environment in ({"NODECTL_OUTPUT": "json"}, {"NODECTL_OUTPUT": "junit"}):
        outcome = CliRunner(env=environment).invoke(root.cli, ["sudoers", "--user", "op"])
        assert outcome.exit_code == 0 and outcome.output.startswith("#")

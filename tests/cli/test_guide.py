"""Every command stands below a heading, and ends its help with examples that its own parser takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from nodectl.cli.app import App
from nodectl.cli.guide import EXAMPLES, TASKS, by_task, examples_of
from nodectl.cli.root import cli, commands, root_context

# what examples name and click wants to see
FILES = ("saved.txt", "won.yml")
_LONGEST = 110


def walk(context: click.Context, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command below the context's, the groups' own names left out."""
    command = context.command
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert child is not None
        if not child.hidden:
            yield from walk(click.Context(child, context, name), (*path, name))


def app() -> App:
    return App.create(inventory=(), limit=None, replay=None, output=None, forks=None)


@pytest.fixture(scope="module")
def every() -> dict[str, click.Command]:
    return dict(walk(root_context(app())))


def test_every_command_stands_below_one_heading() -> None:
    listed = [name for names in TASKS.values() for name in names]
    assert sorted(listed) == sorted(commands())
    assert by_task(["doctor", "newest"]) == {"Start": ["doctor"], "Others": ["newest"]}


def test_every_command_has_one_to_three_examples(every: dict[str, click.Command]) -> None:
    assert {path: len(examples_of(path)) for path in every if not 1 <= len(examples_of(path)) <= 3} == {}
    known = {*every, "", "probe"}
    assert set(EXAMPLES) <= known, "examples of what is no command"
    for path, command in every.items():
        assert all(line in (command.epilog or "") for line, _ in examples_of(path)), path


def test_every_example_is_of_its_command_and_parses(
    every: dict[str, click.Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        (tmp_path / name).write_text("")
    for path in {*every, *EXAMPLES}:
        for line, what in examples_of(path):
            assert what and len(line) + len(what) < _LONGEST, line
            called = parsed(shlex.split(line)[1:])
            assert path in ("", called, called.partition(" ")[0]), line


def parsed(args: list[str]) -> str:
    """The path of the command that the words call; click's error where it refuses them."""
    context = cli.make_context("nodectl", args)
    context.obj = app()
    path: list[str] = []
    while isinstance(context.command, click.Group):
        group = context.command
        name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None and name is not None
        path.append(name)
        context = command.make_context(name, rest, parent=context)
    return " ".join(path)


def test_help_shows_tasks_and_examples() -> None:
    text = cli.get_help(root_context())
    places = [text.index(f"\n{heading}:\n") for heading in TASKS]
    assert places == sorted(places)
    assert text.index("\nOptions:\n") > places[-1]
    assert "nodectl -i hosts.yml" in text.partition("Examples:")[2]

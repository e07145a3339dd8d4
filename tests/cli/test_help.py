"""Every command stands below one heading of the help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from nodectl.cli.app import App
from nodectl.cli.root import TASKS, cli, commands, root_context


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
    return App()


def test_every_command_stands_below_one_heading() -> None:
    assert sorted(name for names in TASKS.values() for name in names) == sorted(commands())
    text = cli.get_help(root_context())
    places = [text.index(f"\n{heading}:\n") for heading in TASKS]
    assert places == sorted(places) and text.index("\nOptions:\n") > places[-1]

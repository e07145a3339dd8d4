"""Every global option before, between and behind the words of every command: the same App, or the same refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click
import pytest

from nodectl.cli.app import App
from nodectl.cli.options import _GLOBAL
from nodectl.cli.root import cli, root_context
from tests.cli.test_help import app, walk

# an option's name → the words of its value; flags have none
VALUES: dict[str, tuple[str, ...]] = {
    "--inventory": ("hosts.yml",),
    "--limit": ("gpu[01-03]",),
    "--replay": ("folder",),
    "--output": ("json",),
    "--forks": ("7",),
    "--extra-vars": ("a=1",),
    "--vault-id": ("ops@file",),
    "--vault-password-file": ("file",),
    "--private-key": ("key",),
}
COMMANDS = dict(walk(root_context(app())))


def option_words() -> Iterator[list[str]]:
    for names, settings in _GLOBAL.items():
        for name in names:
            yield [name, *(() if settings.get("is_flag") else VALUES[names[1 if len(names[0]) == 2 else 0]])]
    yield from (["--output", form] for form in ("junit", "prometheus"))


def outcome(words: list[str]) -> Any:
    """What the App holds after the command line was parsed down to its last command, or the refusal."""
    context = cli.make_context("nodectl", words, ignore_unknown_options=False)
    try:
        context.obj = holder = App.create(typed=_typed(context), **context.params)
        while isinstance(context.command, click.Group):
            group = context.command
            name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
            assert command is not None and name is not None
            context = command.make_context(name, rest, parent=context)
    except click.UsageError as error:
        return error.message
    values = {name: getattr(holder, name) for name in ("inventory_sources", "limit", "replay", "output", "forks")}
    return values | {"access": {name: value for name, value in asdict(holder.access).items() if name != "ask"}}


def _typed(context: click.Context) -> set[str]:
    source = click.core.ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is source}


@pytest.mark.parametrize("path", ["facts", "jobs list", "probe tcp"])
def test_every_place_of_every_option_means_the_same(path: str) -> None:
    words = path.split()
    for option in option_words():
        first = outcome([*option, *words])
        places = [outcome([*words[:place], *option, *words[place:]]) for place in range(1, len(words) + 1)]
        if option[0] == "--output" and isinstance(first, str):
            assert option[1] in first, path
            # behind the command click itself refuses the word, as it does every other one that is not a choice
            assert all(isinstance(other, str) and option[1] in other for other in places), (path, option, places)
        else:
            assert [first] * len(places) == places, (path, option)


def test_no_command_declares_a_global_option_itself() -> None:
    names = {name for group in _GLOBAL for name in group} - {"--output"}
    for path, command in COMMANDS.items():
        own = [param for param in command.params if not getattr(param, "hidden", False)]
        assert not names & {name for param in own for name in param.opts}, path

"""Import every module of the operator's machine, then print the help of every command; say how many of each."""

import pkgutil
import sys

import click
from click.testing import CliRunner

import nodectl
from nodectl.cli.root import cli

_OF_LINUX = ("nodectl.payload", "nodectl.lab", "nodectl.workloads")


def commands(command: click.Command, context: click.Context, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [words]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found += commands(below, click.Context(below, context, name), (*words, name))
    return found


modules = [
    each.name
    for each in pkgutil.walk_packages(nodectl.__path__, "nodectl.")
    if not each.name.startswith(_OF_LINUX) and not each.name.endswith("__main__")
]
for name in modules:
    __import__(name)
helped = commands(cli, click.Context(cli))
for words in helped:
    done = CliRunner().invoke(cli, [*words, "--help"])
    if done.exit_code:
        sys.exit(f"nodectl {' '.join(words)} --help: {done.output} {done.exception!r}")
sys.stdout.write(f"{len(modules)} {len(helped)}\n")

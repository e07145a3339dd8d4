"""Whether the command line has what a page's commands name: each `nodectl …` is read by click's parser, and not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import groupby

import click

from nodectl.cli.root import cli, root_context

_ENDS = set("();<>|&$")


def refused(text: str) -> list[str]:
    """What click says of the nodectl commands in a shell command: an unknown command, option or too few arguments."""
    try:
        return [problem for words in calls(text) if (problem := _problem(words))]
    except ValueError as error:
        return [f"`{text}` is no shell command: {error}"]


def calls(text: str) -> Iterator[list[str]]:
    """The arguments of each `nodectl` in it, in `$(…)`, pipes and lists too; what a heredoc holds is not looked at."""
    plain = re.sub(r"\b[12](?=>)", "", text.partition("<<")[0].replace("\\\n", " "))
    words = shlex.shlex(plain, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    for is_end, part in groupby(words, lambda word: set(word) <= _ENDS):
        command = list(part)
        if not is_end and "nodectl" in command and all("=" in word for word in command[: command.index("nodectl")]):
            yield command[command.index("nodectl") + 1 :]


def _problem(words: list[str]) -> str:
    said = f"`nodectl {shlex.join(words)}`"
    try:
        command: click.Command = cli
        ctx = root_context()
        while isinstance(command, click.Group):
            _, words, _ = command.make_parser(ctx).parse_args(list(words))
            if not words:
                return ""  # --help, or a group that does something by itself
            name, inner, words = command.resolve_command(ctx, words)
            if inner is None:
                return f"{said}: no command {name}"
            command = inner
            ctx = click.Context(command, info_name=name, parent=ctx)
        values, rest, _ = command.make_parser(ctx).parse_args(list(words))
    except click.UsageError as error:
        return f"{said}: {error.format_message()}"
    if "help" in values:
        return ""
    if rest and not command.allow_extra_args:
        return f"{said}: too many arguments: {shlex.join(rest)}"
    lacking = [param.name for param in command.params if _lacks(param, values.get(str(param.name)))]
    return f"{said}: lacks {', '.join(map(str, lacking))}" if lacking else ""


def _lacks(param: click.Parameter, value: object) -> bool:
    """It has to be given, and the parser found no text for it: None, nothing, or click's own mark."""
    return param.required and not (isinstance(value, str | int | tuple | list) and value not in ((), []))

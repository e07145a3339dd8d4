"""Whether the command line has what a page's commands name: each `nodectl …` is read by click's parser, and not run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from nodectl.cli.root import cli, root_context

_ENDS = set("();<>|&")
_BEFORE = {"sudo", "time", "if", "while", "until", "then", "do", "else", "!", "{", "exec"}


def refused(text: str) -> list[str]:
    """What click says of the nodectl commands in a shell command: an unknown command, option or too few arguments."""
    try:
        return [problem for words in calls(text) if (problem := _problem(words))]
    except ValueError as error:
        return [f"`{text}` is no shell command: {error}"]


def calls(text: str) -> Iterator[list[str]]:
    """The arguments of each `nodectl` in it, in `$(…)`, pipes and lists too; what a heredoc holds is not looked at."""
    head, mark, rest = text.replace("\\\n", " ").partition("<<")
    first = head + mark + (rest.partition("\n")[0] if mark else "")
    words = shlex.shlex(first.replace("$(", " ( ").replace("`", " ; "), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    yield from _calls(list(words))


def _calls(words: list[str]) -> Iterator[list[str]]:
    begins = True
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if begins and word == "nodectl":
            found, place = _arguments(words, place)
            yield found
            begins = False
            continue
        if any(part in word for part in (" nodectl ", "(nodectl ")) or word.startswith("nodectl "):
            yield from calls(word)  # bash -c 'nodectl …', "$(nodectl …)"
        begins = set(word) <= _ENDS or word in _BEFORE or (begins and "=" in word)


def _arguments(words: list[str], place: int) -> tuple[list[str], int]:
    found: list[str] = []
    while place < len(words):
        word = words[place]
        if set(word) <= set("<>&") and set(word) & set("<>"):
            if found and found[-1] in {"1", "2"}:
                found.pop()
            place += 2
            continue
        if set(word) <= _ENDS:
            break
        found.append(word)
        place += 1
    return found, place


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

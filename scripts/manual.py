"""The man page nodectl(1), from the commands themselves: `python -m scripts.manual > nodectl.1`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

import click

from nodectl.cli.guide import by_task, examples_of
from nodectl.cli.root import cli, commands, contexts_below, root_context

_HEAD = """\
.TH NODECTL 1 "" nodectl "User commands"
.\\" made by scripts/manual.py of the commands' own help
.nh
.ad l"""
_SEE = (
    r"\fBnodectl\fR \fICOMMAND\fR \fB\-\-help\fR shows the same of one command. "
    r"\fBansible\fR(1), \fBansible\-playbook\fR(1), \fBssh_config\fR(5), \fBtorchrun\fR"
)


def main() -> None:
    """Print it."""
    sys.stdout.write(manual())


def manual() -> str:
    """The page as roff's man macros."""
    context = root_context()
    lines = [
        _HEAD,
        *(".SH NAME", rf"nodectl \- {_text((cli.help or '').rstrip('.'))}"),
        *(".SH SYNOPSIS", r".B nodectl", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGS\fR]..."),
        ".SH TASKS",
        *_tasks(),
        ".SH OPTIONS",
        "Every command takes them, before or behind its name.",
        *_options(context),
        ".SH COMMANDS",
        *_below(context),
        ".SH EXAMPLES",
        *_examples(""),
        *(".SH SEE ALSO", _SEE),
    ]
    return "\n".join(lines) + "\n"


def _tasks() -> Iterator[str]:
    helps = commands()
    for heading, names in by_task(helps).items():
        yield f".SS {_text(heading)}"
        for name in names:
            yield from (".TP", rf"\fB{_text(name)}\fR", _text(helps[name]))


def _below(context: click.Context) -> Iterator[str]:
    """Each command below the context's, under a heading of its own."""
    for inner in contexts_below(context):
        command = inner.command
        pieces = " ".join(command.collect_usage_pieces(inner))
        yield f'.SS "{_text(f"{inner.command_path} {pieces}")}"'
        yield from _paragraphs(command.help or "")
        yield from _options(inner)
        yield from _examples(inner.command_path.partition(" ")[2])
        yield from _below(inner)


def _options(context: click.Context) -> Iterator[str]:
    for param in context.command.get_params(context):
        record = None if getattr(param, "hidden", False) else param.get_help_record(context)
        # an argument says nothing of itself, and every command has --help
        if record is not None and record[1] and param.name != "help":
            yield from (".TP", rf"\fB{_text(record[0])}\fR", _text(" ".join(record[1].split())))


def _examples(path: str) -> Iterator[str]:
    for line, what in examples_of(path):
        yield from (".PP", ".EX", _text(line), ".EE", ".RS", _text(what), ".RE")


def _paragraphs(text: str) -> Iterator[str]:
    """A help text; what `\\b` keeps stays as it stands."""
    for part in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        if part.startswith("\b"):
            yield from (".PP", ".EX", *map(_text, part.strip("\b\n").splitlines()), ".EE")
        else:
            yield from (".PP", _text(" ".join(part.split())))


def _text(text: str) -> str:
    """What roff prints as it stands: no escape, no dash of another kind, no request at a line's beginning."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")
    escaped = re.sub(r"[^\x00-\x7f]", lambda match: rf"\[u{ord(match[0]):04X}]", escaped)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    main()

"""A page for each command of nodectl, as its `--help` has it, with those below it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from nodectl.cli.root import TASKS, cli, commands, contexts_below, root_context
from scripts.site import pages as text_of

_INDEX = """# Command line

{intro}

{commands}

## Options of all commands

They may stand before the command, or behind it.

{options}

Each option can also be set by a variable of the environment (`NODECTL_LAUNCH_LEASE=12`) or in `nodectl.toml`
([where options come from](../../architecture.md#where-options-come-from)). What a command ends with:
[exit statuses](../exit-statuses.md).
"""


def pages() -> dict[str, str]:
    """`cli/index.md`, and `cli/NAME.md` of each command."""
    root = root_context()
    index = _INDEX.format(intro=prose(cli.help or ""), commands=_by_task(), options=_options(root))
    found = {"cli/index.md": index}
    for name, what in commands().items():
        command = cli.get_command(root, name)
        assert command is not None  # noqa: S101  # it was listed
        context = click.Context(command, info_name=name, parent=root)
        title = f"# nodectl {name}: {text_of.plain(what.rstrip('.'))}"
        found[f"cli/{name}.md"] = "\n\n".join(filter(None, [title, *_command(context), *_below(context)])) + "\n"
    return found


def _by_task() -> str:
    """Return the commands under the headings that `nodectl --help` has for them."""
    helps = commands()
    rows = [
        [heading if name == names[0] else "", f"[`nodectl {name}`]({name}.md)", text_of.plain(helps[name])]
        for heading, names in TASKS.items()
        for name in names
    ]
    return text_of.table(["to", "command", "what it does"], rows)


def _below(context: click.Context) -> Iterator[str]:
    """Yield the commands of a group, each under a heading of its own."""
    for inner in contexts_below(context):
        yield f"## {inner.command_path}"
        yield from _command(inner)
        yield from _below(inner)


def _command(context: click.Context) -> Iterator[str]:
    """How it is called, what it does, its options."""
    command = context.command
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f"```text\n{context.command_path} {pieces}\n```"
    yield prose(command.help or "")
    yield _options(context)
    yield prose(command.epilog or "")


def _options(context: click.Context) -> str:
    """Return the options that its help shows, as a table."""
    shown = (param for param in context.command.params if not getattr(param, "hidden", False))
    records = ((param, param.get_help_record(context)) for param in shown)
    rows = [
        [f"`{record[0]}`", text_of.plain(record[1])]
        for param, record in records
        # an argument may have no help: it stands in the line above
        if record and (record[1] or isinstance(param, click.Option))
    ]
    return text_of.table(["option", "meaning"], rows)


def prose(text: str) -> str:
    r"""Return a help text in Markdown: paragraphs, and what `\b` keeps as it stands."""
    parts = inspect.cleandoc(text).partition("\f")[0].split("\n\n")
    kept = (
        f"```text\n{part[2:].strip(chr(10))}\n```" if part.startswith("\b\n") else text_of.plain(part) for part in parts
    )
    return "\n\n".join(kept)

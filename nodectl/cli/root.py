"""The root command: global options, commands imported only when they are called, and how errors end the process."""

from __future__ import annotations

import errno
import os
import pwd
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from nodectl import __version__
from nodectl.cli.app import App
from nodectl.cli.options import GLOBAL_NAMES, global_options, take_global_options
from nodectl.common.paths import unwritable_state
from nodectl.common.spelling import meant
from nodectl.errors import UnreachableError

# a full disk, a file system that is read-only or fails, no more files for this process, a folder of another login
_OF_THE_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE),
    *(errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST),
}
# the first line of a command's docstring: the command has the module's name, and this help line
_HEAD = re.compile(r'"""`nodectl (\w+)`: (.+?)(?:""")?$')


@cache
def commands() -> dict[str, str]:
    """Return each command's help line by its name, read from the first line of its module, which is not imported."""
    here = Path(__file__).parent
    helps = {}
    for path in [*here.glob("*.py"), *here.glob("*/__init__.py")]:
        with path.open(encoding="utf-8") as source:
            # a line of comment may stand before it: a licence, the file's own name
            head = _HEAD.match(next((line.rstrip() for line in source if line.strip() and line[0] != "#"), ""))
        if head and head[1] == (path.parent.name if path.stem == "__init__" else path.stem):
            helps[head[1]] = head[2]
    return helps


# heading → its commands, in the order in which one needs them
TASKS = {
    "Start": ("doctor", "init", "hostkeys", "sudoers", "lab"),
    "Provision and tune": ("provision", "rollback", "profile", "tune"),
    "Look and measure": ("health", "facts", "topology", "exec", "record", "parse", "probe", "accept", "bench"),
    "Train": ("launch", "jobs", "export"),
    "Keep and show": ("ledger", "history", "report", "metrics", "completion"),
}
# what goes on, with a warning, if nothing can be kept; and what is nothing without what is kept
_WITHOUT_STATE = frozenset(
    ("bench", "exec", "export", "facts", "health", "hostkeys", "init", "jobs", "probe", "record", "report", "topology")
)
_NEED_STATE = frozenset(("accept", "history", "lab", "launch", "ledger", "provision", "rollback", "tune"))


class _ReaderGoneError(Exception):
    pass


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in commands():
            return None
        members = vars(import_module(f"nodectl.cli.{cmd_name}")).values()
        (command,) = (each for each in members if isinstance(each, click.Command) and each.name == cmd_name)
        return take_global_options(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchOption:
            raise
        except click.UsageError as error:
            # click asks the commands that are imported, and none is
            if hint := meant(args[0], commands()):
                raise click.UsageError(f"No such command {args[0]!r}. {hint}".rstrip(), ctx) from error
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Invoke as click does, which would end with 1 if the reader of our output has gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        helps = commands()
        width = max(map(len, helps))
        for heading, names in TASKS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", helps[name]) for name in names])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "NODECTL"},
)
@global_options
@click.version_option(__version__, message="nodectl %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Provision, see, measure, tune and run a fleet of GPU nodes."""
    app = ctx.ensure_object(App)
    app.refuse_unknown_settings({*commands(), *GLOBAL_NAMES, "on_event"})
    if ctx.invoked_subcommand in _WITHOUT_STATE:
        app.only_looks()
    elif ctx.invoked_subcommand in _NEED_STATE and (reason := unwritable_state()):
        raise UnreachableError(reason, "make room there, or set XDG_STATE_HOME to a folder that you may write")
    ctx.call_on_close(app.close)


def root_context(app: App | None = None) -> click.Context:
    """For who reads helps or parsers alone: with the root's settings, as click keeps the first help option it makes."""
    return click.Context(cli, info_name="nodectl", obj=app, **cli.context_settings)


def contexts_below(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of each command of a group that helps show; nothing if it is no group."""
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield click.Context(command, info_name=name, parent=context)


def run(argv: Sequence[str] | None = None) -> None:
    """Run the command line and end the process: 2 for usage, 70 for a bug of ours, else as the command says."""
    from nodectl.errors import NodectlError

    _keep_home()
    try:
        status = cli.main(args=None if argv is None else list(argv), prog_name="nodectl", standalone_mode=False)
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        from nodectl.common.process import deaf_from_now_on

        deaf_from_now_on()
        click.echo("nodectl: interrupted", err=True)
        status = 130
    except _ReaderGoneError:  # the reader of our output has gone: nothing is left to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except NodectlError as error:
        show_error(error.message, error.remedy)
        status = error.exit_status
    except OSError as error:
        status = 3 if told_of_this_machine(error) else report_bug(error)
    except Exception as error:
        status = report_bug(error)
    sys.exit(status if isinstance(status, int) else 0)


def _keep_home() -> None:
    """HOME of the password database if there is none: an empty one would be `/` to us, to ansible and to ssh."""
    with suppress(KeyError):  # a number without a login
        os.environ["HOME"] = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir


def show_error(message: str, remedy: str = "") -> None:
    """Print what is wrong on stderr, and in a line below what to do; further lines, of a program, are indented."""
    from nodectl.cli.terminal import safe

    for line in [f"nodectl: {message}", *([f"  try: {remedy}"] if remedy else [])]:
        click.echo(safe(line).replace("\n", "\n    "), err=True)


def told_of_this_machine(error: OSError) -> bool:
    """Show it as what is wrong with the operator's machine, if it is: a full disk, a folder that cannot be written."""
    if error.errno not in _OF_THE_MACHINE:
        return False
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "what nodectl writes"
    remedy = "make room there, or write elsewhere: XDG_STATE_HOME, XDG_CACHE_HOME and TMPDIR name the folders"
    show_error(f"{path}: {error.strerror}", remedy)
    return True


def report_bug(error: Exception) -> int:
    """Keep the traceback in the state folder, or show it if that cannot be; show one line, and return 70."""
    import traceback

    from nodectl.common.paths import state_dir

    text, place = "".join(traceback.format_exception(error)), "above"
    try:
        trace = state_dir() / "last-error.txt"
        trace.write_text(text)
        place = f"in {trace}"
    except OSError:
        click.echo(text, err=True)
    click.echo(f"nodectl: internal error: {type(error).__name__}: {error}\n  the trace is {place}", err=True)
    return 70

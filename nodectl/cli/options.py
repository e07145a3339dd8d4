"""The global options: declared once, accepted before a command and after its name (`nodectl exec --limit gpu01`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from nodectl.cli.app import App
from nodectl.transport.fanout import FORKS

_Command = TypeVar("_Command", bound=Callable[..., object])
_MARK = "_takes_global_options"

# names → click's settings and the help line
_GLOBAL: dict[tuple[str, ...], dict[str, Any]] = {
    ("-i", "--inventory"): {
        "multiple": True,
        "metavar": "INVENTORY",
        "help": "Any Ansible inventory; may be repeated.",
    },
    ("-l", "--limit"): {"metavar": "PATTERN", "help": "Ansible host pattern."},
    ("--replay",): {
        "metavar": "DIR",
        "type": click.Path(file_okay=False),
        "help": "Read a recording instead of hosts.",
    },
    ("--output",): {"type": click.Choice(["table", "json"]), "help": "Default: table."},
    ("--forks",): {"type": click.IntRange(1, 1024), "help": f"Hosts at a time.  Default: {FORKS}."},
}


def global_options(command: _Command) -> _Command:
    """Give the root command all of them."""
    for names, settings in reversed(_GLOBAL.items()):
        command = click.option(*names, **settings)(command)
    return command


def take_global_options(command: click.Command) -> click.Command:
    """Let `command`, and every command below it, take the global options that it does not name itself; idempotent."""
    if isinstance(command, click.Group):
        for child in command.commands.values():
            take_global_options(child)
    elif not getattr(command, _MARK, False):
        taken = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
        command.params.extend(_hidden(names) for names in _GLOBAL if not taken & set(names))
        setattr(command, _MARK, True)
    return command


def _hidden(names: tuple[str, ...]) -> click.Option:
    """The option as a command takes it: the value goes to the App, and the command's help does not show it."""
    return click.Option(
        names,
        **_GLOBAL[names],
        callback=_set_on_app,
        # another inventory brings other settings, which are the defaults of the options read after it
        is_eager="--inventory" in names,
        expose_value=False,
        hidden=True,
        # NODECTL_OUTPUT is the root's to read, not NODECTL_EXEC_OUTPUT a command's
        allow_from_autoenv=False,
    )


def _set_on_app(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    app = ctx.find_object(App)
    if app is None or value in (None, ()):
        return
    if param.name == "inventory":
        app.use_inventory(value)
        ctx.default_map = app.defaults_for(ctx.command_path.split()[1:])
    else:
        setattr(app, str(param.name), value)

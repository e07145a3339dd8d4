"""The global options, accepted before a command and after its name alike (`nodectl provision --limit gpu01`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from nodectl.cli.app import App

OUTPUT = click.Choice(["table", "json"])
FORKS = click.IntRange(1, 1024)
_MARK = "_takes_global_options"


def take_global_options(command: click.Command) -> click.Command:
    """Let `command`, and every command below it, take the global options that it does not name itself; idempotent."""
    if isinstance(command, click.Group):
        for child in command.commands.values():
            take_global_options(child)
    elif not getattr(command, _MARK, False):
        taken = {name for param in command.params for name in [*param.opts, *param.secondary_opts]}
        command.params.extend(option for option in _options() if not taken & set(option.opts))
        setattr(command, _MARK, True)
    return command


def _options() -> list[click.Option]:
    return [
        _option(["-i", "--inventory"], _set_inventory, multiple=True, metavar="INVENTORY", is_eager=True),
        _option(["-l", "--limit"], _setter("limit"), metavar="PATTERN"),
        _option(["--replay"], _setter("replay"), metavar="DIR", type=click.Path(file_okay=False)),
        _option(["--output"], _setter("output"), type=OUTPUT),
        _option(["--forks"], _setter("forks"), type=FORKS),
    ]


def _option(names: list[str], callback: Callable[..., None], **more: Any) -> click.Option:
    # allow_from_autoenv: NODECTL_OUTPUT is the root's to read, not NODECTL_EXEC_OUTPUT a command's
    return click.Option(names, callback=callback, expose_value=False, hidden=True, allow_from_autoenv=False, **more)


def _setter(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def set_on_app(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(ctx.find_object(App), name, value)

    return set_on_app


def _set_inventory(ctx: click.Context, _: click.Parameter, value: tuple[str, ...]) -> None:
    app = ctx.find_object(App)
    if value and app is not None:
        app.use_inventory(value)
        ctx.default_map = app.defaults_for(ctx.command_path.split()[1:])

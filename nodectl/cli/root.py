"""The root command: global options, commands imported only when they are called, and how errors end the process."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from nodectl import __version__
from nodectl.cli.app import App
from nodectl.cli.options import global_options, take_global_options

# name: (module, attribute, help line); kept here so that --help imports no command
COMMANDS = {
    "bench": ("nodectl.cli.bench", "bench", "The articles' tables, measured on these hosts."),
    "exec": ("nodectl.cli.exec", "exec_", "Run a command on all hosts; identical output is shown once."),
    "facts": ("nodectl.cli.facts", "facts", "Show what every host is."),
    "health": ("nodectl.cli.health", "health", "Hold every host against its profiles."),
    "history": ("nodectl.cli.history", "history", "What was measured of this fleet, and what drifts."),
    "hostkeys": ("nodectl.cli.hostkeys", "hostkeys", "Show and accept the hosts' SSH keys."),
    "jobs": ("nodectl.cli.jobs", "jobs", "List, follow, explain and stop jobs."),
    "lab": ("nodectl.cli.lab", "lab", "A real fleet on this machine."),
    "launch": ("nodectl.cli.launch", "launch", "Start a training job over the hosts and follow it."),
    "parse": ("nodectl.cli.parse", "parse", "Read a tool's saved output as JSON."),
    "probe": ("nodectl.cli.probe", "probe", "Measure hosts, pairs and the fleet."),
    "profile": ("nodectl.cli.profile", "profile", "Show the hardware, stack and tuning profiles."),
    "provision": ("nodectl.cli.provision", "provision", "Make the hosts what their profiles say."),
    "record": ("nodectl.cli.record", "record", "Save every host's raw outputs in a folder."),
    "rollback": ("nodectl.cli.rollback", "rollback", "Put back what stood before a run."),
    "sudoers": ("nodectl.cli.sudoers", "sudoers", "Print what an unprivileged login needs of sudo."),
    "topology": ("nodectl.cli.topology", "topology", "Show how GPUs, NICs and hosts are wired."),
    "tune": ("nodectl.cli.tune", "tune", "Try tunings on the live hosts; keep what wins."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return take_global_options(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][2]) for name in self.list_commands(ctx)])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "NODECTL"},
)
@global_options
@click.version_option(__version__, message="nodectl %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> None:
    """Provision, see, measure, tune and run a fleet of GPU nodes."""
    ctx.obj = App.create(**options)
    ctx.default_map = {name: ctx.obj.defaults_for([name]) for name in COMMANDS}
    ctx.call_on_close(ctx.obj.close)


def run(argv: Sequence[str] | None = None) -> None:
    """Run the command line and end the process: 2 for usage, 70 for a bug of ours, else as the command says."""
    from nodectl.errors import NodectlError

    try:
        status = cli.main(args=None if argv is None else list(argv), prog_name="nodectl", standalone_mode=False)
    except click.exceptions.Exit as stop:
        status = stop.exit_code
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("nodectl: interrupted", err=True)
        status = 130
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to tell it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except NodectlError as error:
        show_error(error.message, error.remedy)
        status = error.exit_status
    except Exception as error:
        status = report_bug(error)
    sys.exit(status if isinstance(status, int) else 0)


def show_error(message: str, remedy: str = "") -> None:
    """One line on stderr for what is wrong, a second for what to do."""
    from nodectl.cli.terminal import safe

    click.echo(f"nodectl: {safe(message)}", err=True)
    if remedy:
        click.echo(f"  try: {safe(remedy)}", err=True)


def report_bug(error: Exception) -> int:
    """Keep the traceback in the state folder, show one line, and return 70."""
    import traceback

    from nodectl.common.paths import state_dir

    trace = state_dir() / "last-error.txt"
    trace.write_text("".join(traceback.format_exception(error)))
    click.echo(f"nodectl: internal error: {type(error).__name__}: {error}\n  the trace is in {trace}", err=True)
    return 70

"""`nodectl exec`: Run a command on all hosts; identical output is shown once."""

from __future__ import annotations

from dataclasses import asdict

import click

from nodectl.cli.app import App
from nodectl.cli.options import Seconds
from nodectl.cli.terminal import note
from nodectl.model.result import CommandResult
from nodectl.report.hosts import exec_table


@click.command("exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--timeout", "timeout_s", type=Seconds(min=0, min_open=True), default=60.0, show_default=True,
    help="Seconds a host has for the command."
)  # fmt: skip
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_obj
def exec_(app: App, timeout_s: float, argv: tuple[str, ...]) -> None:
    """Run ARGV on all hosts; identical output is shown once.

    No shell reads ARGV. For pipes, globs and variables ask for one: nodectl exec -- sh -c 'ls *.log | wc -l'
    """
    from nodectl.transport.fanout import run_all

    results = run_all(app.transport, app.hosts, argv, timeout_s=timeout_s, forks=app.forks)
    for result in results:
        if result.cut:
            note(f"{result.host}: {result.error}")
    app.show("exec", {"results": [_row(result) for result in results]}, exec_table(results))
    if any(result.exit_status not in (None, 0) for result in results):
        raise SystemExit(1)
    raise SystemExit(0 if all(result.ok for result in results) else 3)


def _row(result: CommandResult) -> dict[str, object]:
    return {**{key: value for key, value in asdict(result).items() if key != "argv"}, "cut": result.cut}

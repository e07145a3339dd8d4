"""`nodectl tune`: Try tunings on the live hosts; keep what wins."""

from __future__ import annotations

import click

from nodectl.cli.tune.apply import apply, propose, rollback
from nodectl.cli.tune.show import list_, show
from nodectl.cli.tune.trial import trial


@click.group()
def tune() -> None:
    """Try tunings on the live hosts, keep what wins, take back what does not."""


for _command in (trial, list_, show, propose, apply, rollback):
    tune.add_command(_command)

"""`nodectl bench`: The articles' tables, measured on these hosts."""

from __future__ import annotations

import click

from nodectl.cli.bench.network_sweep import network_sweep
from nodectl.cli.bench.retrieval import retrieval


@click.group()
def bench() -> None:
    """The articles' tables, measured on these hosts."""


bench.add_command(network_sweep)
bench.add_command(retrieval)

"""`nodectl bench`: The articles' tables, measured on these hosts."""

from __future__ import annotations

import click

from nodectl.cli.bench.claims import claims
from nodectl.cli.bench.compare import compare
from nodectl.cli.bench.network_sweep import network_sweep
from nodectl.cli.bench.preprocess import preprocess
from nodectl.cli.bench.retrieval import retrieval
from nodectl.cli.bench.scaling import modes, scaling


@click.group()
def bench() -> None:
    """Measure the articles' tables on these hosts."""


for command in (claims, compare, modes, network_sweep, preprocess, retrieval, scaling):
    bench.add_command(command)

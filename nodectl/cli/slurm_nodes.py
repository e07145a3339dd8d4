"""Hosts that Slurm rules, for commands that measure: taken from it, drained or given back."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

import click

from nodectl.cli.app import App
from nodectl.cli.options import OneOf, Seconds, option, option_group
from nodectl.cli.terminal import note
from nodectl.common.process import interruptible
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding

# for how long Slurm lends the hosts, if nothing else is said; longer than a budget
_LENT_S, _LONGER = 4 * 3600.0, 1.5
# drains the hosts that these findings fail
Drain = Callable[[Mapping[str, Sequence[Finding]]], None]


@option_group
class Via:
    """Say who gives the hosts while they are measured, and for how long."""

    via: str = option(
        "--via",
        "slurm: take the hosts from Slurm, and drain those that fail (docs: Slurm).",
        default="ssh",
        type=OneOf(["ssh", "slurm"]),
    )
    reservation: str = option("--reservation", "With slurm: within this reservation.", default="", metavar="NAME")
    time_limit: float | None = option(
        "--time-limit", "With slurm: it has the hosts back after this time.", type=Seconds(60), metavar="TIME"
    )
    sbatch: tuple[str, ...] = option(
        "--sbatch", "With slurm: an option of salloc, as --sbatch=--partition=gpu.", metavar="OPTION"
    )


@contextmanager
def taken(app: App, asked: Via | None, what: str, budget_s: float | None) -> Iterator[Drain]:
    """Have the hosts of Slurm as long as the block lasts, its limit permitting; yield the drain.

    Without options, or over SSH, the hosts are as they are, and nobody's to drain.
    """
    if asked is None or asked.via != "slurm":
        if asked and (asked.reservation or asked.time_limit or asked.sbatch):
            raise click.UsageError("--reservation, --time-limit and --sbatch need --via slurm")
        yield lambda _: None
        return
    from nodectl.health.slurm import drain_reason, report
    from nodectl.jobs.export.sbatch import SbatchJob
    from nodectl.jobs.slurm.login import need_login
    from nodectl.jobs.slurm.nodes import refuse_strange
    from nodectl.ledger.document import slurm_name
    from nodectl.probes.allocation import allocated
    from nodectl.transport.router import open_transport

    # of its own: Ctrl-C closes the hosts' connections before their results are shown
    login = replace(need_login(app.slurm(submits=True)), transport=open_transport())
    nodes = {host.name: slurm_name(host.name) for host in app.hosts}
    job = SbatchJob(
        name=what, nodes=len(nodes), hosts=list(nodes.values()), nproc_per_node=1, program=(), launcher="",
        asked=asked.sbatch, time_limit_s=asked.time_limit or max(_LENT_S, _LONGER * (budget_s or 0)),
    )  # fmt: skip
    # a node that fails is what is looked for, and ends nothing
    options = [*job.salloc_options(), "--no-kill", "--kill-command"]
    options += [f"--reservation={asked.reservation}"] if asked.reservation else []

    def drain(failed: Mapping[str, Sequence[Finding]]) -> None:
        for host, findings in failed.items():
            if drain_reason(findings):
                try:
                    done = report(nodes[host], findings, login.scontrol, mark=f"nodectl {what}: ")
                    note(done or f"{host} is drained already")
                except NodectlError as error:
                    note(f"{host} is not drained: {error.message}\n  try: {error.remedy}")

    name = f"nodectl-{what}-{secrets.token_hex(4)}"
    with closing(login.transport), interruptible():
        refuse_strange(login, list(nodes.values()), asked.reservation)
        with allocated(login.transport, login.host, name, options, note):
            app.allocated = True
            yield drain

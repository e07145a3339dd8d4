"""`nodectl doctor`: Look at this machine and the way to the hosts."""

from __future__ import annotations

import click

from nodectl.cli.app import App
from nodectl.doctor.course import HERE, Request, examine
from nodectl.model.status import exit_status
from nodectl.report.findings import finding_document
from nodectl.report.hosts import doctor_table


@click.command()
@click.option(
    "--all", "everything", is_flag=True, help="Show what is fine, too, and the findings of each host by itself."
)
@click.pass_obj
def doctor(app: App, everything: bool) -> None:
    """Look at this machine and the way to the hosts, and say what is missing with the command that mends it.

    Nothing is changed.  Works without an inventory, and where half of what it looks at is broken.  Ends with 1 if
    something is wrong, else 3 if something could not be told or reached, else 0.
    """
    request = Request(app.inventory_sources, app.access, app.limit, app.forks, lambda: app.transport)
    findings = list(examine(request))
    table = doctor_table(findings, HERE, everything=everything)
    app.show("doctor", {"findings": [finding_document(finding) for finding in findings]}, table)
    raise SystemExit(exit_status(finding.status for finding in findings))

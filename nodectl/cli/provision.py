"""`nodectl provision`: Make the hosts what their profiles say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from nodectl.cli.app import App
from nodectl.cli.progress import become_password, folded, run_playbook, show_table, tallies, tell_messages
from nodectl.cli.question import ask
from nodectl.cli.terminal import emit_json, note

if TYPE_CHECKING:
    from nodectl.provision.events import ProvisionRun


@click.command()
@click.option("--check", is_flag=True, help="Change nothing, and say what would change.")
@click.option("--diff", is_flag=True, help="Show what changes, line by line.")
@click.option("-t", "--tags", multiple=True, metavar="ROLE", help="Only these roles; may be repeated.")
@click.option("--skip-tags", multiple=True, metavar="ROLE", help="All but these roles.")
@click.option("--allow-reboot", is_flag=True, help="Reboot a host, one at a time, where a change needs it.")
@click.option("--yes", is_flag=True, help="Do not ask before changing several hosts.")
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the password that sudo wants on the hosts.")
@click.pass_obj
def provision(
    app: App,
    check: bool,
    diff: bool,
    tags: tuple[str, ...],
    skip_tags: tuple[str, ...],
    allow_reboot: bool,
    yes: bool,
    ask_become_pass: bool,
) -> None:
    """Make the hosts what their profiles say; the same as `ansible-playbook playbooks/site.yml`."""
    from nodectl.provision.outlook import described, selected_roles
    from nodectl.provision.run import ProvisionRequest

    roles, hosts = selected_roles(tags, skip_tags), app.hosts
    if not check:
        lines = described(hosts, roles, allow_reboot)
        ask(hosts, f"provision {len(hosts)} hosts ({folded([host.name for host in hosts])})?", lines, yes=yes)
    _fill_lab_share([host.variables for host in hosts])
    request = ProvisionRequest(
        playbook="site",
        inventory=app.inventory.sources,
        limit=app.limit,
        check=check,
        diff=diff,
        tags=tags,
        skip_tags=skip_tags,
        forks=min(app.forks, max(len(hosts), 1)),
        become_password=become_password(ask_become_pass),
        variables={"nodectl_allow_reboot": True} if allow_reboot else {},
    )
    run = run_playbook(request, [host.name for host in hosts])
    _show(app, run)
    raise SystemExit(run.exit_status)


def _fill_lab_share(variables: list[Any]) -> None:
    """The play does the same; done here first, a long download is seen."""
    from nodectl.common.node_paths import LAB_SHARE
    from nodectl.provision.wheels import ensure_lab_share

    if any(str(host.get("nodectl_wheelhouse", "")).startswith(LAB_SHARE) for host in variables):
        ensure_lab_share(note)


def _show(app: App, run: ProvisionRun) -> None:
    tell_messages(run)
    if app.json:
        from nodectl.provision.events import findings_of
        from nodectl.report.findings import finding_document

        found = [finding_document(each) for each in findings_of(run.answers)]
        emit_json("provision", {"run": run.run, "hosts": tallies(run), "findings": found})
        return
    show_table(run)

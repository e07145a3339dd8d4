"""`nodectl provision`: Make the hosts what their profiles say."""

from __future__ import annotations

from contextlib import nullcontext

import click

from nodectl.cli.app import App
from nodectl.cli.evidence import keep_evidence
from nodectl.cli.measuring import alone
from nodectl.cli.options import check_and_diff, option, option_group, over_others_option, takes, yes_option
from nodectl.cli.progress import run_playbook, show_run
from nodectl.cli.rights import require_root
from nodectl.cli.terminal import ask, note
from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.provision.events import findings_of
from nodectl.provision.outlook import described, lab_requirements, selected_roles
from nodectl.provision.wheels import ensure_lab_share
from nodectl.report.findings import finding_document


@option_group
class _Options:
    tags: tuple[str, ...] = option(
        "-t --tags",
        "Run only these roles; may be repeated.",
        metavar="ROLE",
    )
    skip_tags: tuple[str, ...] = option(
        "--skip-tags",
        "Run all roles but these.",
        metavar="ROLE",
    )
    allow_reboot: bool = option("--allow-reboot", "Reboot a host, one at a time, where a change needs it.")
    upgrade: bool = option(
        "--upgrade", "One host at a time, each accepted (`accept`) before the next; reboots (playbooks/upgrade.yml)."
    )


@click.command()
@takes(_Options)
@check_and_diff
@yes_option
@over_others_option
@click.pass_obj
def provision(app: App, asked: _Options, check: bool, diff: bool, yes: bool, force: bool) -> None:
    """Make the hosts what their profiles say; the same as `ansible-playbook playbooks/site.yml`."""
    require_root(app)
    roles, hosts = selected_roles(asked.tags, asked.skip_tags), app.hosts
    allow_reboot = asked.allow_reboot or asked.upgrade
    if not check:
        lines = described(hosts, roles, allow_reboot)
        ask(hosts, f"provision {counted(len(hosts), 'host')} ({fold(host.name for host in hosts)})?", lines, yes=yes)
    # before the play does the same: so the operator sees a long download
    if requirements := lab_requirements(hosts, roles):
        ensure_lab_share(note, requirements)
    variables: dict[str, object] = {"nodectl_allow_reboot": True} if allow_reboot else {}
    if asked.upgrade:
        variables |= {"nodectl_force": force, "upgrade_options": app.access.arguments()}
    # acceptances take the locks themselves, between the changes of an upgrade
    with nullcontext() if asked.upgrade else alone(app, "provision", force=force, check=check):
        if not check:
            keep_evidence(app, [one for one in hosts if allow_reboot or one.is_true("nodectl_allow_reboot")])
        run = run_playbook(
            app,
            "upgrade" if asked.upgrade else "site",
            check=check,
            diff=diff,
            tags=asked.tags,
            skip_tags=asked.skip_tags,
            variables=variables,
            holds=not asked.upgrade,
        )
    show_run(app, "provision", run, findings=[finding_document(finding) for finding in findings_of(run.answers)])
    raise SystemExit(run.exit_status)

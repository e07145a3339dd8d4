"""`nodectl tune propose`, `apply` and `rollback`: from a verdict to an inventory, onto the hosts, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from nodectl.cli.app import App
from nodectl.cli.measuring import hold, refuse_taken
from nodectl.cli.options import (
    FILE,
    argument,
    check_and_diff,
    force_option,
    option,
    option_group,
    over_others_option,
    takes,
    yes_option,
)
from nodectl.cli.progress import run_playbook, show_run, tell_messages
from nodectl.cli.rights import require_root
from nodectl.cli.rollback import plans_of
from nodectl.cli.rollback import rollback as rollback_command
from nodectl.cli.terminal import ask, note
from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.errors import NodectlError, UsageError
from nodectl.report.findings import finding_document
from nodectl.trials.applied import Applied, Proposed, last_applied, read_proposal, remember
from nodectl.trials.felt import named
from nodectl.trials.propose import proposal_of
from nodectl.trials.propose import propose as write
from nodectl.trials.store import find, now


@option_group
class _Options:
    trial: str = argument(metavar="ID|last|FILE")
    path: Path = option("--write", None, required=True, metavar="FILE.yml", type=FILE)
    profile: str | None = option(
        "--profile", "Candidate that is written.  Default: the one that is better.", metavar="NAME"
    )
    allow_regressions: bool = option(
        "--allow-regressions", "Write a candidate that is worse somewhere, too; the file says so."
    )


@click.command()
@takes(_Options)
@click.pass_obj
def propose(app: App, asked: _Options) -> None:
    """Write what won as one more inventory, with the evidence beside it; refused if nothing has won."""
    trial = find(asked.trial)
    proposal = proposal_of(trial, asked.profile, app.profile_dirs)
    evidence = write(proposal, asked.path, regressions_allowed=asked.allow_regressions)
    document = {
        "proposal": str(asked.path),
        "evidence": str(evidence),
        "profile": proposal.profile,
        "hosts": [*proposal.hosts],
    }
    app.show("tune-proposal", document, str(asked.path))
    if proposal.unmeasured:
        note(f"settings that nothing in the trial could measure are left out: {named(proposal.unmeasured)}")
    note(f"the evidence lies in {evidence}; review it, then: nodectl tune apply {asked.path}")


@click.command()
@click.argument("proposal", metavar="FILE.yml", type=click.Path(dir_okay=False, path_type=Path))
@check_and_diff
@yes_option
@force_option
@click.pass_obj
def apply(app: App, proposal: Path, check: bool, diff: bool, yes: bool, force: bool) -> None:
    """Set what a proposal says, by playbooks/tune.yml with the proposal as one more inventory."""
    proposed = read_proposal(proposal)
    fleet = _with_proposal(app, proposed)
    names = [host.name for host in fleet.hosts]
    require_root(fleet)
    if not check:
        ask(fleet.hosts, f"apply it to {counted(len(names), 'host')} ({fold(names)})?", proposed.lines, yes=yes)
    try:
        with hold(fleet, "tune apply", force=force) as holds:
            refuse_taken(app, holds, "tune-apply", {"hosts": {}})
            findings = [finding_document(finding) for finding in holds.findings]
            run = run_playbook(fleet, "tune", check=check, diff=diff)
    finally:
        fleet.close()
    if not check and any(tally.changed for tally in run.hosts.values()):
        remember(Applied(run.run, str(proposed.path.absolute()), app.inventory.sources, tuple(names), now()))
    show_run(app, "tune-apply", run, findings=findings)
    if not run.exit_status and not check:
        note(f"give it to every later run, or the next one takes it back: nodectl -i … -i {proposal} provision")
    raise SystemExit(run.exit_status)


def _with_proposal(app: App, proposed: Proposed) -> App:
    sources = app.inventory.sources
    hosts = {host.name for host in app.inventory.hosts(None)}
    strange = sorted(set(proposed.hosts) - hosts)
    if strange:
        raise UsageError(
            f"{proposed.path} is for hosts that the inventory has not: {', '.join(strange)}", "give its -i"
        )
    pattern = ",".join(proposed.hosts)
    limit = f"{pattern},&{app.limit}" if app.limit else pattern
    return replace(app, inventory_sources=(*sources, str(proposed.path)), limit=limit)


@click.command()
@check_and_diff
@yes_option
@over_others_option
@click.pass_context
def rollback(ctx: click.Context, check: bool, diff: bool, yes: bool, force: bool) -> None:
    """Take the last `tune apply` back: `nodectl rollback` of its run, refused if a later run came over it."""
    app = ctx.ensure_object(App)
    last = last_applied(app.inventory.sources)
    require_root(app)
    names = _hosts_of(app, last)
    if not names:
        note(f"there is nothing to take back: no host holds a record of the run {last.run}")
        return
    fleet = replace(app, inventory_sources=app.inventory.sources, limit=",".join(names))
    ctx.obj = fleet
    try:
        ctx.invoke(
            rollback_command,
            to="",
            list_=False,
            packages=False,
            check=check,
            diff=diff,
            yes=yes,
            force=force,
        )
    finally:
        fleet.close()


def _hosts_of(app: App, last: Applied) -> list[str]:
    """Return the hosts on which that run was the last one; NodectlError if a later one changed something over it."""
    names = [host.name for host in app.hosts if host.name in last.hosts]
    if not names:
        return []
    run = run_playbook(app, "runs", names)
    if run.exit_status:
        tell_messages(run)
        raise SystemExit(run.exit_status)
    held = {host: [str(record["run"]) for record in plan["runs"]] for host, plan in plans_of(run).items()}
    ours = [name for name in names if last.run in held.get(name, ())]
    over = [name for name in ours if held[name][-1] != last.run]
    if over:
        later = ", ".join(dict.fromkeys(held[name][-1] for name in over))
        raise NodectlError(
            f"{fold(over)}: {later} changed something after the run {last.run}",
            "take that back first: `nodectl rollback`, or `nodectl rollback --to RUN`",
        )
    return ours

"""`nodectl tune propose`, `apply` and `rollback`: from a verdict to an inventory, onto the hosts, and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.rollback import rollback as rollback_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nodectl.provision.events import ProvisionRun
    from nodectl.provision.run import ProvisionRequest
    from nodectl.trials.applied import Applied, Proposed


@click.command()
@click.argument("trial", metavar="ID|FILE")
@click.option("--write", "path", required=True, metavar="FILE.yml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--profile", metavar="NAME", help="Which candidate.  Default: the one that is better.")
@click.option("--group", default="", metavar="GROUP", help="For this group, where all hosts get the same.")
@click.option("--allow-regressions", is_flag=True, help="Also where it is worse somewhere; the file says so.")
@click.pass_obj
def propose(app: App, trial: str, path: Path, profile: str | None, group: str, allow_regressions: bool) -> None:
    """Write what won as one more inventory, with the evidence beside it; refused where nothing has won."""
    from nodectl.cli.terminal import emit_json, note, result
    from nodectl.trials.propose import proposal_of
    from nodectl.trials.propose import propose as write
    from nodectl.trials.store import find

    proposal = proposal_of(find(trial), profile, group)
    beside = write(proposal, path, regressions_allowed=allow_regressions)
    if app.json:
        document = {
            "proposal": str(path),
            "evidence": str(beside),
            "profile": proposal.profile,
            "hosts": [*proposal.hosts],
        }
        emit_json("tune-proposal", document)
    else:
        result(str(path))
    note(f"the evidence lies in {beside}; review it, then: nodectl tune apply {path}")


@click.command()
@click.argument("proposal", metavar="FILE.yml", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Change nothing, and say what would change.")
@click.option("--diff", is_flag=True, help="Show what changes, line by line.")
@click.option("--yes", is_flag=True, help="Do not ask before changing several hosts.")
@click.option("--force", is_flag=True, help="Go on on hosts that another nodectl, a job or a process on a GPU uses.")
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the password that sudo wants on the hosts.")
@click.pass_obj
def apply(app: App, proposal: Path, check: bool, diff: bool, yes: bool, force: bool, ask_become_pass: bool) -> None:
    """Set what a proposal says, by playbooks/tune.yml with the proposal as one more inventory."""
    from nodectl.cli.progress import become_password, folded
    from nodectl.cli.question import ask
    from nodectl.cli.terminal import note
    from nodectl.provision.run import ProvisionRequest
    from nodectl.trials.applied import read_proposal

    proposed = read_proposal(proposal)
    fleet = _with_proposal(app, proposed)
    hosts = fleet.hosts
    names = [host.name for host in hosts]
    if not check:
        ask(hosts, f"apply it to {len(hosts)} hosts ({folded(names)})?", proposed.lines, yes=yes)
    request = ProvisionRequest(
        playbook="tune",
        inventory=fleet.inventory.sources,
        limit=fleet.limit,
        check=check,
        diff=diff,
        forks=min(app.forks, len(hosts)),
        become_password=become_password(ask_become_pass),
    )
    status = _apply(app, fleet, request, proposed, force=force)
    if not status and not check:
        note(f"give it to every later run, or the next one takes it back: nodectl -i … -i {proposal} provision")
    raise SystemExit(status)


def _with_proposal(app: App, proposed: Proposed) -> App:
    """The same fleet with the proposal over it, and no host but those that it is for."""
    from nodectl.errors import UsageError

    sources = app.inventory.sources
    known = {host.name for host in app.inventory.hosts(None)}
    strange = sorted(set(proposed.hosts) - known)
    if strange:
        raise UsageError(
            f"{proposed.path} is for hosts that the inventory has not: {', '.join(strange)}", "give its -i"
        )
    limit = f"{proposed.pattern},&{app.limit}" if app.limit else proposed.pattern
    return replace(app, inventory_sources=(*sources, str(proposed.path)), limit=limit)


def _apply(app: App, fleet: App, request: ProvisionRequest, proposed: Proposed, *, force: bool) -> int:
    from nodectl.cli.progress import run_playbook, show_table, tallies, tell_messages
    from nodectl.cli.terminal import emit_json, note
    from nodectl.model.status import exit_status
    from nodectl.probes.locks import held
    from nodectl.report.findings import finding_document, findings_list

    hosts = fleet.hosts
    try:
        with held(fleet.transport, hosts, "tune apply", forks=app.forks, force=force, note=note) as holds:
            if holds.findings:
                note(findings_list(holds.findings))
            if holds.refused:
                if app.json:
                    emit_json("tune-apply", {"hosts": {}, "findings": [finding_document(f) for f in holds.findings]})
                return exit_status(finding.status for finding in holds.findings)
            run = run_playbook(request, [host.name for host in hosts])
    finally:
        fleet.close()
    if not request.check:
        _remember(app, run, proposed, [host.name for host in hosts])
    tell_messages(run)
    if app.json:
        refused = [finding_document(finding) for finding in holds.findings]
        emit_json("tune-apply", {"run": run.run, "hosts": tallies(run), "findings": refused})
    else:
        show_table(run)
    return run.exit_status


def _remember(app: App, run: ProvisionRun, proposed: Proposed, hosts: Sequence[str]) -> None:
    from nodectl.trials.applied import Applied, remember
    from nodectl.trials.ledger import now

    remember(Applied(run.run, str(proposed.path.absolute()), app.inventory.sources, tuple(hosts), now()))


@click.command()
@click.option("--check", is_flag=True, help="Change nothing, and say what would change.")
@click.option("--diff", is_flag=True, help="Show what changes, line by line.")
@click.option("--yes", is_flag=True, help="Do not ask before changing several hosts.")
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the password that sudo wants on the hosts.")
@click.pass_context
def rollback(ctx: click.Context, check: bool, diff: bool, yes: bool, ask_become_pass: bool) -> None:
    """Take the last `tune apply` back: `nodectl rollback` of its run, refused where a later run came over it."""
    from nodectl.cli.terminal import note
    from nodectl.trials.applied import last_applied

    app = ctx.ensure_object(App)
    last = last_applied(app.inventory.sources)
    names = _hosts_of(app, last)
    if not names:
        note(f"nothing to take back: no host holds a record of the run {last.run}")
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
            ask_become_pass=ask_become_pass,
        )
    finally:
        fleet.close()


def _hosts_of(app: App, last: Applied) -> list[str]:
    """The hosts on which that run was the last one; an error where a later one changed something over it."""
    from nodectl.cli.progress import folded, run_playbook, tell_messages
    from nodectl.errors import NodectlError
    from nodectl.provision.run import ProvisionRequest

    hosts = [host.name for host in app.hosts if host.name in last.hosts]
    if not hosts:
        return []
    request = ProvisionRequest("runs", app.inventory.sources, ",".join(hosts), forks=min(app.forks, len(hosts)))
    run = run_playbook(request, hosts)
    if run.exit_status:
        tell_messages(run)
        raise SystemExit(run.exit_status)
    held = {
        answer.host: [str(one["run"]) for one in answer.result["rollback"]["runs"]]
        for answer in run.answers
        if "rollback" in answer.result
    }
    ours = [host for host in hosts if last.run in held.get(host, ())]
    over = [host for host in ours if held[host][-1] != last.run]
    if over:
        later = ", ".join(dict.fromkeys(held[host][-1] for host in over))
        raise NodectlError(
            f"{folded(over)}: {later} changed something after the run {last.run}",
            "take that back first: `nodectl rollback`, or `nodectl rollback --to RUN`",
        )
    return ours

"""`nodectl hostkeys`: Show and accept the hosts' SSH keys."""

from __future__ import annotations

from collections.abc import Sequence

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import note, result
from nodectl.errors import UsageError
from nodectl.transport.hostkeys import Survey
from nodectl.transport.hostkeys import accept as store

_BAD = {"changed", "revoked"}


@click.group("hostkeys")
def hostkeys() -> None:
    """Show and accept the hosts' SSH keys."""


@hostkeys.command("show")
@click.pass_obj
def show(app: App) -> None:
    """Fetch the keys that the hosts show, and say which are known.

    Exit status: 1 if a key is changed or revoked, else 3 if a host was not reached, else 0.
    """
    from nodectl.transport.hostkeys import servers, survey

    surveys = [row for stage in servers(app.hosts) for row in survey(stage, app.forks)]
    app.show("hostkeys", {"hosts": [_row(row) for row in surveys]}, _survey_lines(surveys))
    raise SystemExit(_exit_status(surveys))


@hostkeys.command("accept")
@click.option("--yes", is_flag=True, help="Do not ask: the fingerprints were compared elsewhere.")
@click.option("--replace", is_flag=True, help="Also replace keys that have changed.")
@click.pass_obj
def accept(app: App, yes: bool, replace: bool) -> None:
    """Show the fingerprints of keys that are not known yet, ask, and store them in known_hosts.

    A changed key is only replaced with --replace: look first whether the host was rebuilt, or is another machine.
    """
    from nodectl.transport.hostkeys import servers, survey

    left: list[Survey] = []
    for stage in servers(app.hosts):
        surveys = survey(stage, app.forks)
        states = {"unknown", "changed"} if replace else {"unknown"}
        wanted = [row for row in surveys if row.key is not None and row.key.standing in states]
        left += [row for row in surveys if row not in wanted and not (row.key and row.key.standing == "known")]
        if wanted:
            result(_survey_lines(wanted))
            if not (yes or _is_agreed(len(wanted))):
                raise UsageError("no key was accepted", "compare the fingerprints, then answer y or give --yes")
            store(wanted)
            files = sorted({str(row.server.known_hosts_file) for row in wanted})
            note(f"accepted the keys of {len(wanted)} in {', '.join(files)}")
    for row in left:
        note(_survey_lines([row]))
    if _any_bad(left):
        note("  try: only if these hosts were rebuilt: nodectl hostkeys accept --replace")
    raise SystemExit(_exit_status(left))


def _is_agreed(count: int) -> bool:
    try:
        return click.confirm(f"Accept the keys of {count}?", err=True)
    except click.Abort:
        return False


def _any_bad(surveys: Sequence[Survey]) -> bool:
    return any(survey.key is not None and survey.key.standing in _BAD for survey in surveys)


def _exit_status(surveys: Sequence[Survey]) -> int:
    if _any_bad(surveys):
        return 1
    return 3 if any(survey.error for survey in surveys) else 0


def _survey_lines(surveys: Sequence[Survey]) -> str:
    lines = []
    for survey in surveys:
        key, name = survey.key, survey.server.name
        if key is not None:
            lines.append(f"{name}  {key.kind}  {key.fingerprint}  {key.standing}")
            continue
        lines.append(f"!!! {name}  unreachable: {survey.error}")
        lines += [f"  try: {survey.remedy}"] if survey.remedy else []
    return "\n".join(lines)


def _row(survey: Survey) -> dict[str, object]:
    target = survey.server.target
    keys = [] if survey.key is None else [survey.key]
    return {
        "host": survey.server.name,
        "address": target.address,
        "port": target.port,
        "known_hosts": str(survey.server.known_hosts_file),
        "keys": [{"kind": key.kind, "fingerprint": key.fingerprint, "state": str(key.standing)} for key in keys],
        "error": survey.error,
    }

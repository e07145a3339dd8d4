"""`nodectl init`: Write an inventory to begin with, each choice explained."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import note
from nodectl.common.counting import counted
from nodectl.common.few import clipped, few
from nodectl.common.nodeset import fold, unfolded
from nodectl.doctor.draft import Draft, write_all
from nodectl.doctor.propose import Found, commands, connection_variables, draft_of, found, secrets, summary
from nodectl.errors import InventoryError, UnreachableError, UsageError
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.profiles.load import profile_dirs
from nodectl.recordings.source import LiveSource

_DEFAULT = "inventory"
_LONGEST_REASON = 400
_MOST_REASONS = 8
# a name, an address, a pattern of an inventory, each with a login before it
_TERM = re.compile(r"[^\s,@-][^\s,@]*(@[^\s,@-][^\s,@]*)?")


@click.command()
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path), default=_DEFAULT)
@click.option(
    "--from",
    "wanted",
    multiple=True,
    required=True,
    metavar="HOST,…",
    help="Look at these hosts, and propose what fits; may be repeated.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.pass_obj
def init(app: App, folder: Path, wanted: tuple[str, ...], force: bool) -> None:
    """Write DIR/hosts.yml and DIR/group_vars/ (DIR: inventory), with the profiles chosen and every choice explained.

    The hosts are looked at (GPUs, driver, network, system), and nothing is changed there. How they are
    reached comes from -i or ANSIBLE_INVENTORY where that has them, passwords left out; else from ~/.ssh/config.
    If one cannot be reached, nothing is written, and the exit status is 3.
    """
    from nodectl.transport.inventory.read import configured, vaulted

    hosts = _hosts(app, wanted)
    looks = _found(app, hosts)
    connections = {host.name: connection_variables(host, configured(), vaulted(host)) for host in hosts}
    draft, notes = draft_of(looks, connections, profile_dirs(_given(app)))
    if secret := sorted({name for host in hosts for name in secrets(host, vaulted(host))}):
        how = "give passwords by -k and -K, or take what is vaulted over by hand"
        notes += (f"{', '.join(secret)} not written: {how}",)
    files = write_all(folder, draft.files(), force=force)
    _show(app, draft, files, notes)
    for text in notes:
        note(text)
    named = f"export ANSIBLE_INVENTORY={shlex.quote(str(files[0].absolute()))}"
    for text in ("next:", f"  {named}", "  nodectl provision --check --diff", "  nodectl provision"):
        note(text)


def _given(app: App) -> tuple[str, ...]:
    """Return the inventory that was named by an option or the environment, not by an ansible.cfg."""
    return app.inventory_sources or tuple(filter(None, [os.environ.get("ANSIBLE_INVENTORY")]))


def _hosts(app: App, wanted: Sequence[str]) -> list[Host]:
    terms = list(dict.fromkeys(part.strip() for text in wanted for part in unfolded(text).split(",")))
    terms = [term for term in terms if term]
    if not terms:
        raise UsageError("--from names no host", "nodectl init --from node01,node02")
    strange = [term for term in terms if not _TERM.fullmatch(term)]
    if strange:
        raise UsageError(
            f"--from: {strange[0]!r} is no host", "give names, node[01-03], or LOGIN@HOST, with commas between"
        )
    given = {term: _in_inventory(app, term) for term in terms} if _given(app) else {}
    others = iter(_by_name(app, [term for term in terms if not given.get(term)]))
    hosts = [host for term in terms for host in given.get(term) or [next(others)]]
    return list({host.name: host for host in hosts}.values())


def _in_inventory(app: App, term: str) -> tuple[Host, ...]:
    try:
        return app.inventory.hosts(term)
    except InventoryError as error:
        if not str(error.message).startswith("no host of "):
            raise
        return ()


def _by_name(app: App, terms: Sequence[str]) -> list[Host]:
    """Hosts that no inventory knows: the transport asks ~/.ssh/config, as ssh does; this machine is asked without."""
    from nodectl.transport.inventory import read_inventory
    from nodectl.transport.inventory.here import inventory_of_here, is_here

    if not terms:
        return []
    bad = [term for term in terms if set(term) & set("*?!&~[]")]
    if bad:
        raise UsageError(f"--from: no host is called {bad[0]!r}", "patterns need an inventory: -i or ANSIBLE_INVENTORY")
    logins = {name: login for login, _, name in (term.rpartition("@") for term in terms)}
    sources = [f"{name}," for name in logins if not is_here(name)]
    hosts = {host.name: host for host in (read_inventory(sources, app.access).hosts() if sources else ())}
    if near := [name for name in logins if is_here(name)]:
        (own,) = read_inventory([inventory_of_here()], app.access).hosts()
        # once, whatever it is called
        hosts |= dict.fromkeys(near, replace(own, name=near[0], address=near[0]))
    for name, login in logins.items():
        if login:
            others = {key: value for key, value in hosts[name].variables.items() if key != "ansible_connection"}
            variables = {**others, "ansible_user": login}
            hosts[name] = replace(hosts[name], user=login, connection="ssh", variables=variables)
    return [hosts[name] for name in logins]


def _found(app: App, hosts: Sequence[Host]) -> list[Found]:
    """Return what each host is; UnreachableError that names all that could not be asked, and those that could."""
    answers: dict[str, Found] = {}
    failed: dict[str, tuple[str, str]] = {}
    for host, answer in LiveSource(tuple(hosts), app.transport, app.forks).recordings(commands):
        try:
            if isinstance(answer, Recording):
                answers[host.name] = found(host, answer)
            else:
                failed[host.name] = (clipped(answer.error or str(answer.outcome), _LONGEST_REASON), answer.remedy)
        except UnreachableError as error:
            failed[host.name] = (error.message, error.remedy)
    if not failed:
        return [answers[host.name] for host in hosts]
    reasons = [f"{host.name}: {failed[host.name][0]}" for host in hosts if host.name in failed]
    named = {remedy: [host for host in failed if failed[host][1] == remedy] for _, remedy in failed.values()}
    remedies = [_for_names(app, remedy, sorted(names)) for remedy, names in named.items() if remedy]
    rest = [f"or without {fold(failed)}: --from {shlex.quote(fold(answers))}"] if answers else []
    text = f"nothing was written, for {len(failed)} of {counted(len(hosts), 'host')}: {few(reasons, _MOST_REASONS)}"
    raise UnreachableError(text, "; ".join([*remedies, *rest]))


def _for_names(app: App, remedy: str, names: Iterable[str]) -> str:
    """Return the remedy, whose command names the hosts themselves as an inventory if there is none."""
    if _given(app):
        return remedy
    return remedy.replace("nodectl hostkeys", f"nodectl -i {shlex.quote(','.join(names) + ',')} hostkeys")


def _show(app: App, draft: Draft, files: Sequence[Path], notes: Sequence[str]) -> None:
    document = {
        "files": [str(path) for path in files],
        "groups": [
            {
                "name": group.name,
                "hosts": list(group.hosts),
                **{choice.name: choice.value for choice in group.choices if not choice.open},
            }
            for group in draft.groups
        ],
        "notes": list(notes),
    }
    app.show("init", document, "\n".join([summary(draft), *(f"wrote {path}" for path in files)]))

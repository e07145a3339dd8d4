"""Values that a TAB offers, found without asking a host; none if they cannot be told."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.transport.inventory.names import Names

VARIABLE = "_NODECTL_COMPLETE"
# nobody waits longer for a TAB
_MOST_S = 5
_Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem[str]]"]
# names that are known here
_Words = Callable[[click.Context], Iterable[str]]
# the parts of a host pattern, each of which may begin with a sign
_PATTERN = re.compile(r"(?P<before>(?:.*[,:])?[!&]?)(?P<part>[^,:]*)", re.DOTALL)


def completes() -> bool:
    """Return whether a shell asks what may stand here, and wants nothing done."""
    return VARIABLE in os.environ


def complete(cli: click.Group) -> None:
    """Answer the shell and end the process; whatever is wrong, nothing is said, and no file of a folder is run."""
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 2):
        os.dup2(silent, descriptor)
    signal.alarm(_MOST_S)
    try:
        app = App(inventory_sources=(), limit=None, replay=None, output="table", forks=1)
        cli.main(prog_name="nodectl", obj=app)
    except Exception:
        sys.exit(1)


def _items(values: Iterable[str], incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(word) for word in values if word.startswith(incomplete)]


def one_of(values: _Words, *, files: bool = False) -> _Complete:
    """One of the words; with `files` also a file or folder, if none of them begins so."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        items = _items(values(ctx), incomplete)
        return items or ([CompletionItem(incomplete, type="file")] if files else [])

    return offer


def several_of(values: _Words) -> _Complete:
    """Offer the words that are not given yet, with commas between them."""

    def offer(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        before, comma, part = incomplete.rpartition(",")
        given = before.split(",")
        return [CompletionItem(f"{before}{comma}{word}") for word in values(ctx) if word.startswith(part)
                and word not in given]  # fmt: skip

    return offer


def pattern(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the hosts and groups of the inventory, each part of a pattern for itself."""
    inventory = _names(ctx)
    match = _PATTERN.fullmatch(incomplete)
    if inventory is None or match is None:
        return []
    return [
        CompletionItem(f"{match['before']}{name}")
        for name in (*inventory.hosts, *inventory.groups)
        if name.startswith(match["part"])
    ]


def host(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """One host of the inventory."""
    inventory = _names(ctx)
    return _items(inventory.hosts, incomplete) if inventory else []


def job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Offer the jobs of this inventory that were started or listed here."""
    from nodectl.jobs.seen import seen_jobs

    inventory = _names(ctx)
    return _items(["last", *(seen_jobs("\n".join(inventory.sources)) if inventory else ())], incomplete)


def _names(ctx: click.Context) -> Names | None:
    """Return the names in the inventory that the typed words name; None if it cannot be read."""
    from nodectl.errors import NodectlError
    from nodectl.transport.inventory.names import names_of

    app = ctx.find_object(App)
    sources: Sequence[str] = (app.inventory_sources if app else ()) or ctx.find_root().params.get("inventory") or ()
    try:
        return names_of(sources)
    except (NodectlError, OSError):
        return None


def profiles(*kinds: str) -> _Words:
    """Name the profiles of these kinds, of all if none is given: nodectl's own, and those next to the inventory."""

    def names(ctx: click.Context) -> list[str]:
        from nodectl.profiles import KINDS
        from nodectl.profiles.load import find_profiles, profile_dirs

        inventory = _names(ctx)
        folders = profile_dirs(inventory.sources) if inventory else ()
        return [name for kind in kinds or KINDS for name in find_profiles(kind, folders)]

    return names


def recordings(ctx: click.Context) -> list[str]:
    """Return those that nodectl ships."""
    from nodectl.recordings.folder import bundled

    return list(bundled())


def faults(ctx: click.Context) -> list[str]:
    """Name the kinds of faults of a lab."""
    from nodectl.lab.faults import FAULTS

    return list(FAULTS)


def labs(ctx: click.Context) -> list[str]:
    """Name the labs of this operator."""
    from nodectl.common.paths import state_dir

    return sorted(path.parent.name for path in (state_dir() / "lab").glob("*/lab.json"))


def probes(ctx: click.Context) -> list[str]:
    """Name the probes."""
    from nodectl.probes.registry import listed

    return [probe.name for probe in listed()]


def launch_check_names(ctx: click.Context) -> list[str]:
    """Return what `launch --skip` takes."""
    from nodectl.checks.catalogue import launch_checks

    return [name.removeprefix("launch_") for name in launch_checks()]


def trials(ctx: click.Context) -> list[str]:
    """List the trials that are kept, the latest first."""
    from nodectl.trials.store import folder

    return ["last", *sorted((path.stem for path in folder().glob("[0-9]*.json")), reverse=True)]


def provision_runs(ctx: click.Context) -> list[str]:
    """Name the runs of playbooks that were started here, the latest first."""
    from nodectl.common.paths import state_dir

    runs: Iterable[Path] = (state_dir() / "runs" / "artifacts").glob("*/")
    return ["start", *sorted((path.name for path in runs), reverse=True)]


def role_names(ctx: click.Context) -> list[str]:
    """Name the roles of the collection."""
    from nodectl.common.resources import share_dir

    return sorted(path.name for path in (share_dir() / "roles").glob("[!_]*/"))

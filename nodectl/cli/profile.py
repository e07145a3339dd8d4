"""`nodectl profile`: Show the hardware, stack and tuning profiles."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import note
from nodectl.common.spelling import meant
from nodectl.errors import InventoryError, ProfileError
from nodectl.probes.floors import refuse_wrong_floors
from nodectl.profiles import KINDS
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.describe import own_warnings, problem_row, values
from nodectl.profiles.gpus import is_composed
from nodectl.profiles.host import of_host
from nodectl.profiles.load import find_profiles, profile_dirs
from nodectl.profiles.resolve import Resolved, load_profile, resolve
from nodectl.profiles.schema import Hardware, Stack, Tuning

_REASONS = ("why", "source", "origin", "unverified")


@click.group()
def profile() -> None:
    """Show, compare and check profiles of hardware, stack and tuning."""


@profile.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """List all profiles by kind and mark those that warn; a fleet's own lie in profiles/ beside its inventory."""
    folders = _own_dirs(app)
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for name, path in find_profiles(kind, folders).items():
            loaded = load_profile(kind, name, folders)
            row = {"kind": kind, "name": name, "description": loaded.description, "file": str(path)}
            rows.append({**row, "warnings": list(own_warnings(loaded))})
    width = max(len(row["name"]) for row in rows)
    lines = [
        f"{row['kind']:8}  {row['name']:{width}} {'!' if row['warnings'] else ' '} {row['description']}" for row in rows
    ]
    app.show("profile-list", {"profiles": rows}, "\n".join(lines))
    if not app.json and any(row["warnings"] for row in rows):
        note("! warns when it is used: nodectl profile show NAME says of what")


@profile.command()
@click.argument("name")
@click.pass_obj
def show(app: App, name: str) -> None:
    """Show each value of the profile NAME (or KIND/NAME), with its reason, its source and where it comes from.

    NAME may be a host of the inventory: all that it should be, its own values over those of its profiles.
    """
    bare = name.rpartition("/")[2]
    resolved = _resolved_host(app, name)
    if resolved is None:
        kind, loaded = _named(app, name)
        rows, warnings, about = dict(values(loaded)), own_warnings(loaded), loaded.description
    else:
        parts = {kind: dict(values(getattr(resolved, kind))) for kind in resolved.names}
        rows = {f"{part}.{path}": row for part, values_of_part in parts.items() for path, row in values_of_part.items()}
        kind, warnings, about = "host", resolved.warnings, ", ".join(resolved.names.values())
    lines = [f"{kind} {bare}: {about}"]
    for path, row in rows.items():
        if not _is_empty(row):
            lines.append(f"  {path} = {_text(row)}")
            lines += [f"      {word}: {row[word]}" for word in _REASONS if row.get(word)]
    document = {"kind": kind, "name": bare, "values": rows, "warnings": list(warnings)}
    app.show("profile", document, "\n".join(lines))
    for warning in warnings:
        note(f"warning: {warning}")


@profile.command()
@click.argument("first")
@click.argument("second")
@click.pass_obj
def diff(app: App, first: str, second: str) -> None:
    """Show what differs between two profiles of one kind."""
    kind, left = _named(app, first)
    other, right = _named(app, second, kind)
    if kind != other:
        raise ProfileError(f"{first} is a {kind} profile and {second} a {other} profile", "compare two of one kind")
    before, after = dict(values(left)), dict(values(right))
    paths = sorted(path for path in before | after if _value(before.get(path)) != _value(after.get(path)))
    rows = [{"path": path, "first": _value(before.get(path)), "second": _value(after.get(path))} for path in paths]
    lines = [
        f"{sign} {path} = {_text(side[path])}"
        for path in paths
        for sign, side in (("-", before), ("+", after))
        if not _is_empty(side.get(path))
    ]
    app.show("profile-diff", {"differences": rows}, "\n".join(lines))


@profile.command()
@click.option("--hardware", metavar="NAME", required=True)
@click.option("--stack", metavar="NAME", required=True)
@click.option("--tuning", metavar="NAME", default="stock", show_default=True)
@click.option(
    "--allow-unsupported",
    multiple=True,
    metavar="REASON",
    help="Accept this unsupported combination, as nodectl_allow_unsupported does; may be repeated.",
)
@click.pass_context
def validate(ctx: click.Context, hardware: str, stack: str, tuning: str, allow_unsupported: tuple[str, ...]) -> None:
    """Tell whether these profiles can work together: 0, or 1 with the reason and the nearest working choice."""
    app: App = ctx.obj
    folders = _own_dirs(app)
    loaded = load_profile("hardware", hardware, folders)
    if isinstance(loaded, Hardware):
        refuse_wrong_floors(loaded, str(find_profiles("hardware", folders).get(hardware, f"hardware {hardware}")))
    try:
        resolved = resolve(hardware, stack, tuning, extra_dirs=folders, allow_unsupported=allow_unsupported)
    except IncompatibleError as error:
        if not app.json:
            raise
        warnings = [problem.text for problem in error.problems if not problem.refuses]
        rows = [problem_row(problem) for problem in error.refusals]
        app.show("profile-validate", {"valid": False, "refusals": rows, "warnings": warnings}, "")
        note(error.message)
        ctx.exit(error.exit_status)
    for warning in resolved.warnings:
        note(f"warning: {warning}")
    document = {
        "valid": True,
        "refusals": [],
        "warnings": list(resolved.warnings),
        "unsupported": list(resolved.unsupported),
    }
    verdict = "unsupported, and allowed" if resolved.unsupported else "can work together"
    app.show("profile-validate", document, f"hardware {hardware}, stack {stack}, tuning {tuning}: {verdict}")


def _own_dirs(app: App) -> tuple[Path, ...]:
    """Return the folders of the fleet's own profiles; the inventory itself need not be readable for that."""
    named = app.inventory_sources or tuple(filter(None, os.environ.get("ANSIBLE_INVENTORY", "").split(",")))
    return profile_dirs(named or ("inventory/hosts.yml",))


def _named(app: App, name: str, prefer: str | None = None) -> tuple[str, Hardware | Stack | Tuning]:
    """(kind, profile) of NAME or KIND/NAME; ProfileError if there is none, or more than one kind has it."""
    folders = _own_dirs(app)
    wanted, _, bare = name.rpartition("/")
    kinds = [kind for kind in KINDS if wanted in ("", kind) and bare in find_profiles(kind, folders)]
    if prefer in kinds:
        kinds = [prefer]
    if not kinds and is_composed(bare):
        kinds = ["hardware"]
    if not kinds:
        among = (wanted,) if wanted in KINDS else KINDS
        profiles = [(kind, name) for kind in among for name in find_profiles(kind, folders)]
        near = meant(bare, [profile for _, profile in profiles])
        raise ProfileError(f"there is no profile {name!r}", f"{near}one of: {', '.join(map('/'.join, profiles))}")
    if len(kinds) > 1:
        raise ProfileError(f"{name!r} names several profiles", f"say {' or '.join(f'{kind}/{bare}' for kind in kinds)}")
    return kinds[0], load_profile(kinds[0], bare, folders)


def _resolved_host(app: App, name: str) -> Resolved | None:
    """Return what the host of this name should be; None if a profile has the name, or no host."""
    if "/" in name or is_composed(name) or any(name in find_profiles(kind, _own_dirs(app)) for kind in KINDS):
        return None
    try:
        hosts = {host.name: host for host in app.inventory.hosts(name)}
    except InventoryError:
        return None
    return of_host(hosts[name], extra_dirs=app.profile_dirs) if name in hosts else None


def _value(row: dict[str, Any] | None) -> Any:
    return row["value"] if row else None


def _is_empty(row: dict[str, Any] | None) -> bool:
    return _value(row) in (None, [], {})


def _text(row: dict[str, Any]) -> str:
    value = row["value"]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

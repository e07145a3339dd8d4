"""`nodectl profile`: Show the hardware, stack and tuning profiles."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import yaml

from nodectl.cli import completing
from nodectl.cli.app import App
from nodectl.cli.measuring import facts_of
from nodectl.cli.options import EXISTING_FILE, FILE, argument, option, option_group, profile_option, takes
from nodectl.cli.terminal import note, writing
from nodectl.common.files import replace_file
from nodectl.common.nodeset import fold
from nodectl.common.spelling import meant
from nodectl.errors import InventoryError, ProfileError
from nodectl.facts.catalogue import facts_for
from nodectl.ledger.accept.store import read as read_acceptance
from nodectl.ledger.history.compare import read_measurements
from nodectl.model.measurement import Measurement
from nodectl.probes.floors import refuse_wrong_floors
from nodectl.probes.registry import kind_of
from nodectl.profiles import KINDS
from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.describe import own_warnings, problem_row, values
from nodectl.profiles.gpus import is_composed
from nodectl.profiles.host import of_host
from nodectl.profiles.learn import accepted_in, taken_on
from nodectl.profiles.learn import learn as learned_from
from nodectl.profiles.load import find_profiles, profile_dirs
from nodectl.profiles.resolve import Resolved, load_profile, resolve
from nodectl.profiles.schema import Hardware, Stack, Tuning


@click.group()
def profile() -> None:
    """Show, compare, check and learn profiles of hardware, stack and tuning."""


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
@click.argument("name", shell_complete=completing.one_of(completing.profiles()))
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
            lines += [f"  {path} = {_text(row)}", *(f"      {reason}" for reason in _reasons(row))]
    document = {"kind": kind, "name": bare, "values": rows, "warnings": list(warnings)}
    app.show("profile", document, "\n".join(lines))
    for warning in warnings:
        note(f"warning: {warning}")


@profile.command()
@click.argument("first", shell_complete=completing.one_of(completing.profiles()))
@click.argument("second", shell_complete=completing.one_of(completing.profiles()))
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
@profile_option("hardware", required=True)
@profile_option("stack", required=True)
@profile_option("tuning", default="stock", show_default=True)
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
    _refuse_wrong_floors(app, hardware)
    try:
        resolved = resolve(hardware, stack, tuning, extra_dirs=_own_dirs(app), allow_unsupported=allow_unsupported)
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


def _refuse_wrong_floors(app: App, name: str) -> None:
    """Raise ProfileError with file and field where a floor of this hardware profile could never be compared."""
    folders = _own_dirs(app)
    loaded = load_profile("hardware", name, folders)
    if isinstance(loaded, Hardware):
        refuse_wrong_floors(loaded, str(find_profiles("hardware", folders).get(name, f"hardware {name}")))


@option_group
class _Options:
    hosts: tuple[str, ...] = argument(nargs=-1, metavar="[HOST...]", shell_complete=completing.host)
    name: str | None = option("--name", "Name of the profile.  Default: the output file's name.", metavar="NAME")
    output_file: Path | None = option(
        "--output-file", "Write the profile into this file instead of standard output.", type=FILE
    )
    measurements: tuple[Path, ...] = option(
        "--measurements",
        "Output of `nodectl --output json probe` on these hosts: its least values become floors; may be repeated.",
        multiple=True,
        type=EXISTING_FILE,
    )
    accepted: Path | None = option(
        "--from",
        "Output of `nodectl accept --output json`: takes the hosts that it accepted, and floors of what it measured.",
        type=EXISTING_FILE,
    )
    compute_capability: str | None = option(
        "--compute-capability", "Family of GPUs that nodectl does not know.", metavar="X.Y"
    )


@profile.command()
@takes(_Options)
@click.pass_obj
def learn(app: App, asked: _Options) -> None:
    """Write a hardware profile from HOSTs that are known to be good; refused where they disagree.

    Each value says from which hosts, when and by which command it was learned.  Put the file into profiles/hardware/
    beside the inventory, and its name into nodectl_hardware.
    """
    remedy = "give what `nodectl --output json probe …` printed"
    given = [floor for path in asked.measurements for floor in _floor_like(read_measurements(path, remedy))]
    hosts, measured_in = asked.hosts, ""
    if asked.accepted is not None:
        acceptance = read_acceptance(asked.accepted, "give what `nodectl accept --output json` printed", extra="ignore")
        hosts = accepted_in(acceptance, asked.hosts)
        given += _floor_like(taken_on(acceptance, hosts))
        measured_in = f"accepted by {acceptance.id} ({acceptance.level}, {acceptance.nature})"
    if not hosts:
        raise click.UsageError("name hosts, or an acceptance: --from FILE")
    app.limit = ",".join(hosts)
    facts = facts_of(app, facts_for(root=False))
    learned = learned_from(
        facts,
        names=fold(list(facts)),
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        measurements=given,
        measured_in=measured_in,
        capability=asked.compute_capability,
    )
    text = yaml.safe_dump(learned.document, sort_keys=False, allow_unicode=True, width=120)
    called = asked.name or (asked.output_file.stem if asked.output_file else "learned")
    document = {"name": called, "profile": learned.document, "notes": list(learned.notes)}
    app.show("profile-learn", document, text if asked.output_file is None else "")
    if (file := asked.output_file) is not None:
        with writing(file, "--output-file", "name a file in a folder that is there and may be written to"):
            replace_file(file, text, mode=0o644)
        note(f"wrote {file}; as profiles/hardware/{called}.yml beside the inventory it is hardware {called!r}")
    for warning in learned.notes:
        note(f"warning: {warning}")


def _floor_like(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return those of which more is better, with the conditions that a floor names, wherever on a host they were taken.

    A latency has a ceiling and no floor, and a count of errors has neither.
    """
    floors = []
    for measurement in measurements:
        kind = kind_of(measurement.probe)
        if kind.lower_is_better(measurement.unit) is False:
            # by another network it is another figure; by another GPU of the host it is not
            places = set(kind.places) - {"interfaces"}
            chosen = kind.chosen(measurement.conditions).items()
            conditions = {name: value for name, value in chosen if name not in places}
            floors.append(replace(measurement, conditions=conditions))
    return floors


def _own_dirs(app: App) -> tuple[Path, ...]:
    """Return the folders of the fleet's own profiles; the inventory itself need not be readable for that."""
    named = app.inventory_sources or tuple(filter(None, os.environ.get("ANSIBLE_INVENTORY", "").split(",")))
    return profile_dirs(named or ("inventory/hosts.yml",))


def _named(app: App, name: str, prefer: str | None = None) -> tuple[str, Hardware | Stack | Tuning]:
    """(kind, profile) of NAME or KIND/NAME; ProfileError where there is none, or more than one kind has it."""
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
    """Return what the host of this name should be; None where a profile has the name, or no host."""
    if "/" in name or is_composed(name) or any(name in find_profiles(kind, _own_dirs(app)) for kind in KINDS):
        return None
    try:
        hosts = {host.name: host for host in app.inventory.hosts(name)}
    except InventoryError:
        return None
    return of_host(hosts[name], extra_dirs=app.profile_dirs) if name in hosts else None


def _reasons(row: dict[str, Any]) -> list[str]:
    keys = ("why", "source", "origin", "unverified")
    return [f"{word}: {row[word]}" for word in keys if row.get(word)]


def _value(row: dict[str, Any] | None) -> Any:
    return row["value"] if row else None


def _is_empty(row: dict[str, Any] | None) -> bool:
    return _value(row) in (None, [], {})


def _text(row: dict[str, Any]) -> str:
    value = row["value"]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

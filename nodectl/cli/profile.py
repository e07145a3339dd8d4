"""`nodectl profile`: Show the hardware, stack and tuning profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodectl.cli.app import App
from nodectl.cli.profile_learn import learn
from nodectl.cli.profile_option import profile_option
from nodectl.cli.terminal import emit_json, note, result
from nodectl.errors import ProfileError

if TYPE_CHECKING:
    from nodectl.profiles.schema import Hardware, Stack, Tuning


@click.group()
def profile() -> None:
    """What should be: hardware, stack and tuning profiles."""


profile.add_command(learn)


@profile.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """All profiles by kind, those that warn marked; a fleet's own lie in profiles/ beside its inventory."""
    from nodectl.profiles import KINDS
    from nodectl.profiles.describe import own_warnings
    from nodectl.profiles.load import find_profiles
    from nodectl.profiles.resolve import load_profile

    folders = _own_dirs(app)
    rows = []
    for kind in KINDS:
        for name, path in find_profiles(kind, folders).items():
            shown = load_profile(kind, name, folders)
            warns = list(own_warnings(shown))
            rows.append(
                {"kind": kind, "name": name, "description": shown.description, "file": str(path), "warnings": warns}
            )
    if app.json:
        emit_json("profile-list", {"profiles": rows})
        return
    width = max(len(str(row["name"])) for row in rows)
    for row in rows:
        mark = "!" if row["warnings"] else " "
        result(f"{row['kind']:8}  {row['name']:{width}} {mark} {row['description']}")
    if any(row["warnings"] for row in rows):
        note("! warns when it is used: nodectl profile show NAME says of what")


@profile.command()
@click.argument("name")
@click.pass_obj
def show(app: App, name: str) -> None:
    """Each value of the profile NAME (or KIND/NAME), with its reason, its source and where it comes from."""
    from nodectl.profiles.describe import own_warnings, values

    kind, shown = _named(app, name)
    lines, warnings = dict(values(shown)), own_warnings(shown)
    if app.json:
        document = {"kind": kind, "name": name.rpartition("/")[2], "values": lines, "warnings": list(warnings)}
        emit_json("profile", document)
    else:
        result(f"{kind} {name.rpartition('/')[2]}: {shown.description}")
        for path, row in lines.items():
            if row["value"] not in (None, [], {}):
                result(f"  {path} = {_text(row['value'])}" + "".join(f"\n      {word}" for word in _reasons(row)))
    for warning in warnings:
        note(f"warning: {warning}")


@profile.command()
@click.argument("first")
@click.argument("second")
@click.pass_obj
def diff(app: App, first: str, second: str) -> None:
    """What differs between two profiles of one kind."""
    from nodectl.profiles.describe import values

    kind, left = _named(app, first)
    other, right = _named(app, second, kind)
    if kind != other:
        raise ProfileError(f"{first} is a {kind} profile and {second} a {other} profile", "compare two of one kind")
    before, after = dict(values(left)), dict(values(right))
    paths = sorted(path for path in before | after if _plain(before.get(path)) != _plain(after.get(path)))
    if app.json:
        rows = [{"path": p, "first": _plain(before.get(p)), "second": _plain(after.get(p))} for p in paths]
        emit_json("profile-diff", {"differences": rows})
        return
    for path in paths:
        for sign, side in (("-", before), ("+", after)):
            if _plain(side.get(path)) not in (None, [], {}):
                result(f"{sign} {path} = {_text(side[path]['value'])}")


@profile.command()
@profile_option("hardware", required=True)
@profile_option("stack", required=True)
@profile_option("tuning", default="stock", show_default=True)
@click.option("--allow-unsupported", multiple=True, metavar="REASON", help="As nodectl_allow_unsupported; repeatable.")
@click.pass_context
def validate(ctx: click.Context, hardware: str, stack: str, tuning: str, allow_unsupported: tuple[str, ...]) -> None:
    """Whether these profiles can work together: exit status 0, or 1 with the reason and the nearest working choice."""
    from nodectl.profiles.compat import IncompatibleError
    from nodectl.profiles.describe import problem_row
    from nodectl.profiles.resolve import resolve

    app: App = ctx.obj
    try:
        resolved = resolve(hardware, stack, tuning, extra_dirs=_own_dirs(app), allow_unsupported=allow_unsupported)
    except IncompatibleError as error:
        if not app.json:
            raise
        warnings = [problem.text for problem in error.problems if not problem.refuses]
        rows = [problem_row(problem) for problem in error.refusals]
        emit_json("profile-validate", {"valid": False, "refusals": rows, "warnings": warnings})
        note(error.message)
        ctx.exit(error.exit_status)
    for warning in resolved.warnings:
        note(f"warning: {warning}")
    if app.json:
        document = {
            "valid": True,
            "refusals": [],
            "warnings": list(resolved.warnings),
            "unsupported": list(resolved.unsupported),
        }
        emit_json("profile-validate", document)
    else:
        verdict = "unsupported, and allowed" if resolved.unsupported else "can work together"
        result(f"hardware {hardware}, stack {stack}, tuning {tuning}: {verdict}")


def _own_dirs(app: App) -> tuple[Path, ...]:
    """The fleet's own profiles; the inventory itself need not be readable for that."""
    import os

    from nodectl.profiles.load import profile_dirs

    named = app.inventory_sources or tuple(filter(None, os.environ.get("ANSIBLE_INVENTORY", "").split(",")))
    return profile_dirs(named or ("inventory/hosts.yml",))


def _named(app: App, name: str, prefer: str | None = None) -> tuple[str, Hardware | Stack | Tuning]:
    """(kind, profile) of NAME or KIND/NAME; ProfileError where there is none, or more than one kind has it."""
    from nodectl.profiles import KINDS
    from nodectl.profiles.load import find_profiles
    from nodectl.profiles.resolve import load_profile

    folders = _own_dirs(app)
    wanted, _, bare = name.rpartition("/")
    kinds = [kind for kind in KINDS if wanted in ("", kind) and bare in find_profiles(kind, folders)]
    if prefer in kinds:
        kinds = [prefer]
    if not kinds:
        known = ", ".join(f"{kind}/{name}" for kind in KINDS for name in find_profiles(kind, folders))
        raise ProfileError(f"no profile {name!r}", f"one of: {known}")
    if len(kinds) > 1:
        raise ProfileError(f"{name!r} names several profiles", f"say {' or '.join(f'{kind}/{bare}' for kind in kinds)}")
    return kinds[0], load_profile(kinds[0], bare, folders)


def _reasons(row: dict[str, Any]) -> list[str]:
    words = ("why", "source", "origin", "unverified")
    return [f"{word}: {row[word]}" for word in words if row.get(word)]


def _plain(row: dict[str, Any] | None) -> Any:
    return row["value"] if row else None


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

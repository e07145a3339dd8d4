"""`nodectl profile`: what the profiles say, where each value comes from, and whether they can work together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import emit_json, note, result
from nodectl.errors import ProfileError

if TYPE_CHECKING:
    from nodectl.profiles.schema import Hardware, Stack, Tuning


@click.group()
def profile() -> None:
    """What should be: hardware, stack and tuning profiles."""


@profile.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """All profiles by kind; a fleet's own lie in profiles/ beside its inventory."""
    from nodectl.profiles.load import find_profiles
    from nodectl.profiles.resolve import load_profile
    from nodectl.profiles.schema import KINDS

    folders = _own_dirs(app)
    rows = [
        {
            "kind": kind,
            "name": name,
            "description": load_profile(kind, name, folders).description,
            "file": str(path),
        }
        for kind in KINDS
        for name, path in find_profiles(kind, folders).items()
    ]
    if app.json:
        emit_json("profile-list", {"profiles": rows})
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        result(f"{row['kind']:8}  {row['name']:{width}}  {row['description']}")


@profile.command()
@click.argument("name")
@click.pass_obj
def show(app: App, name: str) -> None:
    """Each value of the profile NAME (or KIND/NAME), with its reason and its source."""
    kind, found = _named(app, name)
    lines = dict(_values(found))
    if app.json:
        emit_json("profile", {"kind": kind, "name": name.rpartition("/")[2], "values": lines})
    else:
        result(f"{kind} {name.rpartition('/')[2]}: {found.description}")
        for path, value in lines.items():
            result(f"  {path} = {value['value']}" + "".join(f"\n      {word}" for word in _reasons(value)))
    _warn(found)


@profile.command()
@click.argument("first")
@click.argument("second")
@click.pass_obj
def diff(app: App, first: str, second: str) -> None:
    """What differs between two profiles of one kind."""
    kind, left = _named(app, first)
    other, right = _named(app, second, kind)
    if kind != other:
        raise ProfileError(f"{first} is a {kind} profile and {second} a {other} profile", "compare two of one kind")
    before, after = dict(_values(left)), dict(_values(right))
    paths = sorted(path for path in before | after if _plain(before.get(path)) != _plain(after.get(path)))
    if app.json:
        rows = [{"path": p, "first": _plain(before.get(p)), "second": _plain(after.get(p))} for p in paths]
        emit_json("profile-diff", {"differences": rows})
        return
    for path in paths:
        for sign, side in (("-", before), ("+", after)):
            if path in side:
                result(f"{sign} {path} = {side[path]['value']}")


@profile.command()
@click.option("--hardware", required=True, metavar="NAME")
@click.option("--stack", required=True, metavar="NAME")
@click.option("--tuning", default="stock", show_default=True, metavar="NAME")
@click.pass_obj
def validate(app: App, hardware: str, stack: str, tuning: str) -> None:
    """Whether these profiles can work together: exit status 0, or 1 with the reason."""
    from nodectl.profiles.resolve import resolve

    resolved = resolve(hardware, stack, tuning, extra_dirs=_own_dirs(app))
    for warning in resolved.warnings:
        note(f"warning: {warning}")
    if app.json:
        emit_json("profile-validate", {"valid": True, "warnings": list(resolved.warnings)})
    else:
        result(f"hardware {hardware}, stack {stack}, tuning {tuning}: can work together")


def _own_dirs(app: App) -> tuple[Path, ...]:
    """The fleet's own profiles; the inventory itself need not be readable for that."""
    import os

    from nodectl.profiles.load import profile_dirs

    named = app.inventory_sources or tuple(filter(None, os.environ.get("ANSIBLE_INVENTORY", "").split(",")))
    return profile_dirs(named or ("inventory/hosts.yml",))


def _named(app: App, name: str, prefer: str | None = None) -> tuple[str, Hardware | Stack | Tuning]:
    """(kind, profile) of NAME or KIND/NAME; ProfileError where there is none, or more than one kind has it."""
    from nodectl.profiles.load import find_profiles
    from nodectl.profiles.resolve import load_profile
    from nodectl.profiles.schema import KINDS

    folders = _own_dirs(app)
    wanted, _, bare = name.rpartition("/")
    kinds = [kind for kind in KINDS if wanted in ("", kind) and bare in find_profiles(kind, folders)]
    if prefer in kinds:
        kinds = [prefer]
    if not kinds:
        known = ", ".join(f"{kind}/{each}" for kind in KINDS for each in find_profiles(kind, folders))
        raise ProfileError(f"no profile {name!r}", f"one of: {known}")
    if len(kinds) > 1:
        raise ProfileError(f"{name!r} names several profiles", f"say {' or '.join(f'{kind}/{bare}' for kind in kinds)}")
    return kinds[0], load_profile(kinds[0], bare, folders)


def _values(found: Hardware | Stack | Tuning) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, {value, why, source}) of each field and setting."""
    for field, value in found.model_dump(exclude={"description"}).items():
        if isinstance(value, dict):
            for key, setting in value.items():
                yield f"{field}.{key}", _setting(setting)
        else:
            yield field, {"value": value}


def _setting(setting: Any) -> dict[str, Any]:
    if not isinstance(setting, dict):
        return {"value": setting}
    forms = [
        f"{form['value']} (NCCL < {form['below']})" if form["below"] else form["value"]
        for form in setting.get("forms", ())
    ]
    return {"value": " | ".join(forms) or setting["value"], "why": setting["why"], "source": setting["source"]}


def _reasons(value: dict[str, Any]) -> list[str]:
    return [f"{word}: {value[word]}" for word in ("why", "source") if value.get(word)]


def _plain(value: dict[str, Any] | None) -> Any:
    return value["value"] if value else None


def _warn(found: Hardware | Stack | Tuning) -> None:
    names = getattr(found, "debug_variables", ())
    if names:
        note(f"warning: {', '.join(names)}: of NCCL's debugging class, which may cost speed or hang a job")

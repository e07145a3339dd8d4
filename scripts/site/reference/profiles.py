"""A page for each kind of profile: every value with its reason, its source and what is not confirmed."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.common.resources import profiles_dir
from nodectl.profiles import KINDS
from nodectl.profiles.describe import own_warnings, values
from nodectl.profiles.load import check_document, find_profiles, read_document
from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Hardware, Stack, Tuning
from scripts.site.pages import plain, table

_INDEX = """# Profiles

What should be, in three files: what a host is made of, what is installed, what is set. How they are chosen and put
together: [Profiles](../../profiles.md). `nodectl profile show NAME` shows one in a terminal.

{kinds}
"""
_TITLES = {
    "hardware": "Hardware: what a host is made of",
    "stack": "Stacks: what is installed",
    "tuning": "Tunings: what is set on top",
}


def pages() -> dict[str, str]:
    """`profiles/index.md`, and `profiles/KIND.md`."""
    kinds = [f"- [{_TITLES[kind]}]({kind}.md)" for kind in KINDS]
    return {"profiles/index.md": _INDEX.format(kinds="\n".join(kinds))} | {
        f"profiles/{kind}.md": "\n\n".join([f"# {_TITLES[kind]}", *_kind(kind)]) + "\n" for kind in KINDS
    }


def _kind(kind: str) -> Iterator[str]:
    if kind == "tuning":
        yield "## On every host"
        yield "These hold whatever the tuning, which may replace them."
        path = profiles_dir() / "base.yml"
        yield _values(check_document(Tuning, read_document(path), str(path)))
    for name in find_profiles(kind):
        profile = load_profile(kind, name)
        yield f"## {name}"
        yield f"{plain(profile.description)}."
        yield from (f"!!! warning\n    {plain(warning)}" for warning in own_warnings(profile))
        yield _values(profile) or "It sets nothing."


def _values(profile: Hardware | Stack | Tuning) -> str:
    """Return the values that it has; a column that would be empty is none."""
    rows = [(path, row) for path, row in values(profile) if row["value"] not in (None, [], {})]
    columns = [name for name in ("why", "source") if any(row.get(name) for _, row in rows)]
    return table(
        ["what", "value", *columns],
        [[f"`{path}`", _value(row["value"]), *(plain(row.get(name, "")) for name in columns)] for path, row in rows],
    )


def _value(value: object) -> str:
    return plain(", ".join(map(str, value)) if isinstance(value, list) else str(value))

"""A page for each kind of profile: every value with its reason, its source and what is not confirmed."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.common.resources import profiles_dir
from nodectl.profiles import KINDS
from nodectl.profiles.compat import profile_problems
from nodectl.profiles.describe import own_warnings, values
from nodectl.profiles.load import check_document, find_profiles, read_document
from nodectl.profiles.matrix import matrix
from nodectl.profiles.resolve import load_profile, load_stacks
from nodectl.profiles.schema import Hardware, Stack, Tuning
from scripts.site.pages import plain, table

_INDEX = """# Profiles

What should be, in three files: what a host is made of, what is installed, what is set. How they are chosen and put
together: [Profiles](../../profiles.md). `nodectl profile show NAME` shows one in a terminal.

{kinds}

## Hardware with stacks

What `nodectl profile validate` says of the profiles alone, with the tuning `stock`; the codes are those of its JSON.

{compatibility}
"""
_TITLES = {
    "hardware": "Hardware: what a host is made of",
    "stack": "Stacks: what is installed",
    "tuning": "Tunings: what is set on top",
}


def pages() -> dict[str, str]:
    """`profiles/index.md`, and `profiles/KIND.md`."""
    kinds = [f"- [{_TITLES[kind]}]({kind}.md)" for kind in KINDS]
    index = _INDEX.format(kinds="\n".join(kinds), compatibility=_compatibility())
    return {"profiles/index.md": index} | {
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


def _compatibility() -> str:
    """Return the table of every hardware profile with every stack."""
    stacks = load_stacks()
    loaded = {name: load_profile("hardware", name) for name in find_profiles("hardware")}
    rows = [
        [f"`{name}`", *(_verdict(profile, stack) for stack in stacks.values())]
        for name, profile in loaded.items()
        if isinstance(profile, Hardware)
    ]
    return table(["", *(f"`{name}`" for name in stacks)], rows)


def _verdict(hardware: Hardware, stack: Stack) -> str:
    """Return `yes`, `yes, warns`, or the codes of the refusals."""
    stock = load_profile("tuning", "stock")
    assert isinstance(stock, Tuning)  # noqa: S101  # what the kind means
    problems = list(profile_problems(hardware, stack, stock, matrix()))
    refusals = dict.fromkeys(problem.code for problem in problems if problem.refuses)
    return ", ".join(refusals) or ("yes, warns" if problems else "yes")

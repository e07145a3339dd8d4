"""Recordings of a host, made of outputs by key: what all tests of facts read."""

from typing import Any

from nodectl.facts.catalogue import facts_named, read_facts
from nodectl.model.recording import Entry, Recording

Said = str | int | tuple[int, str] | tuple[int, str, str]


def recording(**outputs: Said) -> Recording:
    """Each key (`_` for `-`) said its text, or ended with a status and what it said on stdout and stderr."""
    entries = {}
    for name, said in outputs.items():
        key = name.replace("_", "-")
        if isinstance(said, str):
            said = (0, said)
        elif isinstance(said, int):
            said = (said, "", "it broke\n")
        status, out, *err = said
        entries[key] = Entry(key, (key,), status, out, err[0] if err else "", 0.01)
    return Recording("gpu01", entries)


def fact(subject: str, **outputs: Said) -> Any:
    """One subject of such a recording."""
    return read_facts(recording(**outputs), facts_named(subject))[subject]

"""The kinds of faults for people and programs: what each is, and which check has to find it."""

from __future__ import annotations

from nodectl.lab.faults.base import Fault
from nodectl.lab.faults.catalogue import FAULTS


def way_of(fault: Fault) -> str:
    """How it comes about, and when it shows."""
    return f"{'recorded' if fault.recorded else 'real'}{', load' if fault.load else ''}"


def kinds_table() -> str:
    """A line a kind."""
    width = max(map(len, FAULTS))
    rows = [f"{name:<{width}}  {way_of(each):<10}  {each.about}" for name, each in FAULTS.items()]
    return "\n".join(rows)


def kinds_document() -> dict[str, object]:
    """`found_by`: one of these checks has to see it."""
    kinds = [
        {
            "kind": name,
            "about": each.about,
            "recorded": each.recorded,
            "load": each.load,
            "found_by": list(each.checks),
        }
        for name, each in FAULTS.items()
    ]
    return {"kinds": kinds}

"""The table of docs/probes.md from the probes' declarations: `python scripts/probe_doc.py`, `--check` to compare."""

from __future__ import annotations

import sys
from pathlib import Path

from nodectl.probes.base import ProbeOptions
from nodectl.probes.options import declared
from nodectl.probes.registry import AnyProbe, listed

DOC = Path(__file__).resolve().parent.parent / "docs" / "probes.md"
_BEGIN, _END = "<!-- probes -->\n", "<!-- end of probes -->"
_HEADING = ["probe", "what", "unit", "usual", "a host or round", "options of its own", "groups"]


def filled(text: str) -> str:
    """The text with its table as the declarations have it."""
    before, found, rest = text.partition(_BEGIN)
    if not found or _END not in rest:
        sys.exit(f"{DOC}: no lines {_BEGIN.strip()} and {_END}")
    rows = [_HEADING, ["---"] * len(_HEADING), *(_row(probe) for probe in listed())]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    return f"{before}{_BEGIN}{table}{_END}{rest.partition(_END)[2]}"


def _row(probe: AnyProbe) -> list[str]:
    common = {each.field for each in declared(ProbeOptions)}
    return [
        f"`{probe.name}`",
        probe.summary.rstrip("."),
        ", ".join(unit.name for unit in probe.results.units),
        f"{probe.usual.repetitions} x {probe.usual.duration_s:g} s",
        f"{probe.cost_s(probe.usual):.0f} s",
        " ".join(f"`{each.flag}`" for each in declared(probe.options) if each.field not in common) or "-",
        ", ".join(probe.groups) or "-",
    ]


def main() -> None:
    """Write the table, or end with 1 where it is not the declarations'."""
    text = DOC.read_text(encoding="utf-8")
    wanted = filled(text)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if text == wanted else f"{DOC}: not what the probes say; run python scripts/probe_doc.py")
    DOC.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()

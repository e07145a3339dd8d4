"""The tables in docs/ that declarations say: `scripts/docs.py` writes them, `--check` compares.

A table stands between the lines `<!-- NAME -->` and `<!-- end of NAME -->` of its page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from nodectl.accept.steps import STEPS, Level
from nodectl.common.declarations import ended
from nodectl.common.resources import data_dir
from nodectl.probes.base import ProbeOptions
from nodectl.probes.options import declared
from nodectl.probes.registry import AnyProbe, listed
from nodectl.profiles.compat import profile_problems
from nodectl.profiles.load import find_profiles
from nodectl.profiles.matrix import matrix
from nodectl.profiles.resolve import load_profile, load_stacks
from nodectl.profiles.schema import Hardware, Stack, Tuning

DOCS = Path(__file__).resolve().parent.parent / "docs"
# rows of cells by the name of the table, the first the heading
Tables = dict[str, list[list[str]]]


def probe_tables() -> Tables:
    """Return every probe."""
    return {
        "probes": [
            ["probe", "what", "unit", "usual", "a host or round", "options of its own", "groups"],
            *map(_probe_row, listed()),
        ],
    }


def _probe_row(probe: AnyProbe) -> list[str]:
    common = {declaration.field for declaration in declared(ProbeOptions)}
    own = [f"`{declaration.flag}`" for declaration in declared(probe.options) if declaration.field not in common]
    return [
        f"`{probe.name}`",
        probe.summary.rstrip("."),
        ", ".join(unit.name for unit in probe.results.units),
        f"{probe.usual.repetitions} x {probe.usual.duration_s:g} s",
        f"{probe.cost_s(probe.usual):.0f} s",
        " ".join(own) or "-",
        ", ".join(probe.groups) or "-",
    ]


def accept_tables() -> Tables:
    """Return the steps of an acceptance, in their order."""
    levels = [level for level in Level if level is not Level.GATE]
    rows = [
        [
            f"`{kind.name}`",
            kind.about,
            str(kind.scope),
            *("yes" if kind.options(level, ()) is not None else "" for level in levels),
        ]
        for kind in STEPS
    ]
    return {"accept steps": [["step", "what", "measured by", *map(str, levels)], *rows]}


def profile_tables() -> Tables:
    """Return which hardware a stack fits."""
    stacks = load_stacks()
    loaded = {name: load_profile("hardware", name) for name in find_profiles("hardware")}
    hardware = {name: profile for name, profile in loaded.items() if isinstance(profile, Hardware)}
    return {
        "compatibility": [
            ["", *(f"`{name}`" for name in stacks)],
            *(
                [f"`{name}`", *(_verdict(profile, stack) for stack in stacks.values())]
                for name, profile in hardware.items()
            ),
        ],
    }


def _verdict(hardware: Hardware, stack: Stack) -> str:
    """`yes`, `yes, warns`, or the codes of the refusals."""
    stock = load_profile("tuning", "stock")
    assert isinstance(stock, Tuning)  # noqa: S101  # what the kind means
    problems = list(profile_problems(hardware, stack, stock, matrix()))
    refusals = dict.fromkeys(problem.code for problem in problems if problem.refuses)
    return ", ".join(refusals) or ("yes, warns" if problems else "yes")


def alert_tables() -> Tables:
    """Return every alert with when it fires."""
    groups = yaml.safe_load((data_dir() / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return {
        "alerts": [
            ["alert", "severity", "for", "when"],
            *(
                [
                    f"`{rule['alert']}`",
                    rule["labels"]["severity"],
                    rule.get("for", "-"),
                    f"`{rule['expr']}`".replace("|", "\\|"),
                ]
                for group in groups
                for rule in group["rules"]
            ),
        ],
    }


PAGES: dict[str, Callable[[], Tables]] = {
    "accept.md": accept_tables,
    "probes.md": probe_tables,
    "profiles.md": profile_tables,
    "report.md": alert_tables,
}


def filled(text: str, tables: Tables, page: str) -> str:
    """Return the page with its tables as the declarations have them; ends with 1 where a table has no place in it."""
    for name, (heading, *rows) in tables.items():
        lines = [f"| {' | '.join(cells)} |" for cells in (heading, *rows)]
        lines.insert(1, "|" + "---|" * len(heading))
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, there, rest = text.partition(begin)
        if not there or end not in rest:
            sys.exit(f"{page}: no lines {begin.strip()} and {end}")
        text = "".join([before, begin, "\n".join(lines), "\n", end, rest.partition(end)[2]])
    return text


def main() -> None:
    """Write the tables; with --check end with 1 where a page does not say what the declarations say."""
    stale = []
    for name, tables in PAGES.items():
        page = DOCS / name
        text = page.read_text(encoding="utf-8")
        wanted = filled(text, tables(), name)
        if text != wanted:
            stale.append(f"docs/{name}")
            if "--check" not in sys.argv[1:]:
                page.write_text(wanted, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"{', '.join(stale)}: not what the declarations say; run scripts/docs.py")
    for name in stale:
        print(f"{name}: written")


if __name__ == "__main__":
    ended(main)

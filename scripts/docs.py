"""The tables in docs/ that declarations say: `scripts/docs.py` writes them, `--check` compares.

A table stands between the lines `<!-- NAME -->` and `<!-- end of NAME -->` of its page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from nodectl.common.declarations import ended
from nodectl.common.resources import data_dir
from nodectl.jobs.remedies import classes
from nodectl.profiles.published import published_files

DOCS = Path(__file__).resolve().parent.parent / "docs"
# rows of cells by the name of the table, the first the heading
Tables = dict[str, list[list[str]]]


def alert_tables() -> Tables:
    """Return every alert with when it fires."""
    groups = yaml.safe_load((data_dir() / "prometheus" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return {
        "alerts": [
            ["alert", "severity, for", "when"],
            *(
                [
                    f"`{rule['alert']}`",
                    ", ".join([rule["labels"]["severity"], *([rule["for"]] if "for" in rule else [])]),
                    f"`{' '.join(rule['expr'].split())}`".replace("|", "\\|"),
                ]
                for group in groups
                for rule in group["rules"]
                if "alert" in rule
            ),
        ],
    }


def data_tables() -> Tables:
    """Return each file of facts that somebody else publishes, with its source and its time."""
    head = ["file", "source", "read on", "taken for true until"]
    rows = [
        [
            f"`{path.relative_to(DOCS.parent)}`",
            str(told["source"]).replace("|", "\\|"),
            str(told["read_on"]),
            str(told["valid_until"]),
        ]
        for path, told in published_files()
    ]
    return {"published": [head, *rows]}


def class_table() -> Tables:
    """Return each class of a job's end with what it means."""
    return {"classes": [["class", "means"], *([f"`{name}`", row["means"]] for name, row in classes().items())]}


PAGES: dict[str, Callable[[], Tables]] = {
    "report.md": alert_tables,
    "evidence.md": data_tables,
    "jobs.md": class_table,
}


def filled(text: str, tables: Tables, page: str) -> str:
    """Return the page with its tables as the declarations have them; ends with 1 if a table has no place in it."""
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
    """Write the tables; with --check end with 1 if a page does not say what the declarations say."""
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

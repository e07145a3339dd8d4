"""The tables of docs/health.md from the checks' declarations: `python scripts/health_doc.py`, `--check` to compare."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from nodectl.checks.catalogue import checks, thresholds

DOC = Path(__file__).resolve().parent.parent / "docs" / "health.md"


def filled(text: str) -> str:
    """The text with its two tables as the code has them."""
    tables = {
        "checks": [f"| `{check.id}` | {check.looks_at} | {check.fires} |" for check in checks().values()],
        "thresholds": [f"| `{limit.name}` | {limit.value:g} | {limit.why} |" for limit in thresholds().values()],
    }
    for name, rows in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n.*?\n\|[-|]+\|\n).*?(<!-- end of {name} -->)", re.DOTALL)
        # cut apart: a backslash in a row is no reference to a group
        parts = pattern.split(text)
        text = "".join([parts[0], parts[1], "\n".join(rows), "\n", *parts[2:]])
    return text


def main() -> None:
    """Write the tables, or end with 1 where they are not the code's."""
    text = DOC.read_text(encoding="utf-8")
    wanted = filled(text)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if text == wanted else f"{DOC}: not what the checks say; run python scripts/health_doc.py")
    DOC.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()

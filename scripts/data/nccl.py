"""Mend plugins/module_utils/nccl_variables.tsv by NCCL's guide: new variables, and which are for debugging only.

    python -m scripts.data.nccl env.rst

env.rst is docs/userguide/source/env.rst of NVIDIA/nccl. A new variable takes any text until somebody reads which values
it takes; the first version that has one is the source's, which the guide does not always know.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).resolve().parents[2] / "plugins" / "module_utils" / "nccl_variables.tsv"
_VARIABLE = re.compile(r"^(NCCL_[A-Z0-9_]+)[^\n]*\n-{3,} *\n+(?:\(since (\d[\d.]*\d))?", re.MULTILINE)


def of_guide(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (name, first version where it is said, whether it is for debugging) of each variable in the guide."""
    debugging = text.index("\nDebugging\n=")
    for found in _VARIABLE.finditer(text):
        yield found[1], found[2] or "-", found.start() > debugging


def mended(table: str, guide: str) -> str:
    """Return the table with what the guide has: rows that it lacks, and each one's category."""
    lines = table.splitlines()
    head = [line for line in lines if line.startswith("#")]
    rows = {line.partition("\t")[0]: line.split("\t") for line in lines[len(head) :]}
    for name, since, debug in of_guide(guide):
        row = rows.setdefault(name, [name, since, "-", "-", "text", "guide"])
        row[3] = "debug" if debug else "-"
    return "\n".join([*head, *("\t".join(rows[name]) for name in sorted(rows))]) + "\n"


if __name__ == "__main__":
    guide = Path(sys.argv[1]).read_text(encoding="utf-8")
    TABLE.write_text(mended(TABLE.read_text(encoding="utf-8"), guide), encoding="utf-8")

"""Makers of the files in nodectl/data that hold what others publish, each from a saved copy of the document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parents[2] / "nodectl" / "data"


def write_rows(name: str, rows: Iterable[Any], key: str = "rows") -> None:
    """Write a file's rows, texts as they are.

    What stands before them (source, read_on, valid_until) is kept, to be mended by hand.
    """
    path = DATA / name
    head = re.split(rf"^{key}:\n", path.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
    path.write_text(f"{head}{key}:\n" + "".join(f"  - {_line(row)}\n" for row in rows), encoding="utf-8")


def _line(row: Any) -> str:
    if isinstance(row, str):
        return row
    line = yaml.safe_dump(row, default_flow_style=True, sort_keys=False, width=999).strip()
    return line.replace("''", '""')

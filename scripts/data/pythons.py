"""Make the Pythons of nodectl/data/support.yml: until when python.org mends each.

    python -m scripts.data.pythons release-cycle.json

release-cycle.json is https://peps.python.org/api/release-cycle.json.
What has not ended has a month: its last day counts.
"""

from __future__ import annotations

import json
import sys
from calendar import monthrange
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from scripts.data import write_rows


def pythons(text: str) -> Iterator[dict[str, object]]:
    """Yield each Python from 3.7 on with its last day, the oldest first."""
    for minor, told in reversed(json.loads(text).items()):
        year, month, *day = map(int, told["end_of_life"].split("-"))
        if tuple(map(int, minor.split("."))) >= (3, 7):
            yield {"python": minor, "ends": date(year, month, *(day or [monthrange(year, month)[1]]))}


if __name__ == "__main__":
    write_rows("support.yml", pythons(Path(sys.argv[1]).read_text(encoding="utf-8")), "pythons")

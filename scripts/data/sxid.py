"""Make nodectl/data/nvidia/sxid.yml: the SXids of NVIDIA's Fabric Manager guide, and how bad each is.

    python -m scripts.data.sxid sxid.go

sxid.go is components/accelerator/nvidia/sxid/ of leptonai/gpud, which has appendix D of the guide as a table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.data import write_rows

_ENTRY = re.compile(r"^\t(\d+): \{[^\n]*\n(.*?)^\t\},", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\t\t(\w+): +(.*),$", re.MULTILINE)


def sxids(go: str) -> Iterator[str]:
    """Yield each SXid as a row of the file, in the order of their codes."""
    for code, body in sorted(_ENTRY.findall(go), key=lambda entry: int(entry[0])):
        entry = dict(_FIELD.findall(body))
        yield f"[{code}, {_severity(entry)}, {entry['Name']}]"


def _severity(entry: dict[str, str]) -> str:
    # the guide's sections of what is fatal are values that the entries refer to
    always, to_a_port = entry["AlwaysFatal"], entry["PotentialFatal"]
    if entry.get("OtherImpact") == '""':
        return "notable"
    if always == "true" or always.startswith("defaultAlwaysFatal"):
        return "always fatal"
    return "fatal" if to_a_port == "true" or to_a_port.startswith("defaultPotentialFatal") else "nonfatal"


if __name__ == "__main__":
    write_rows("nvidia/sxid.yml", sxids(Path(sys.argv[1]).read_text(encoding="utf-8")))

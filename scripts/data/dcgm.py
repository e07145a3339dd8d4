"""Make nodectl/data/nvidia/dcgm.yml: the error codes of DCGM's diagnostic, by name and in NVIDIA's words.

    python -m scripts.data.dcgm dcgm_errors.h

dcgm_errors.h is dcgmlib/dcgm_errors.h of NVIDIA/DCGM.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from scripts.data import write_rows

_ROW = re.compile(r"^\s*DCGM_FR_(\w+)\s+= (\d+), +//!< \d+ (.+)$", re.MULTILINE)


def rows(text: str) -> list[tuple[int, str, str]]:
    """Return (code, name, NVIDIA's words) of each error in the header, but for the mark of the end."""
    errors = text.partition("dcgmError_enum")[2].partition("dcgmError_t")[0]
    return [(int(code), name, words) for name, code, words in _ROW.findall(errors) if name != "ERROR_SENTINEL"]


if __name__ == "__main__":
    write_rows("nvidia/dcgm.yml", rows(Path(sys.argv[1]).read_text(encoding="utf-8")))

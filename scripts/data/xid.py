"""Make xid.yml and nvlink5.yml of nodectl/data/nvidia: what NVIDIA lists of Xids, and of NVLink's by their bits.

    python -m scripts.data.xid catalog_generated.go nverror.h

catalog_generated.go is components/accelerator/nvidia/xid/ of leptonai/gpud, made of the sheets of NVIDIA's catalogue;
nverror.h is src/common/sdk/nvidia/inc/ of NVIDIA/open-gpu-kernel-modules, which names what the catalogue has not yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.data import write_rows

_FIELD = re.compile(r'(\w+): (?:"((?:[^"\\]|\\.)*)"|(\w+))')
_NAME = re.compile(r"^#define (\w+) +\((\d+)\)", re.MULTILINE)
# in its catalogue it depends on what else came
_IN_WORDS = {45: "RESTART_FM where it comes alone"}


def _entries(go: str, kind: str) -> Iterator[dict[str, str]]:
    for line in go.partition(f"[]{kind}{{\n")[2].partition("\n}")[0].splitlines():
        yield {name: text or number for name, text, number in _FIELD.findall(line)}


def _action(text: str) -> str:
    return "" if text.startswith("N/A") else text.partition(" (")[0]


def xids(go: str, header: str) -> Iterator[tuple[int, str, str, str, str]]:
    """Yield (code, mnemonic, immediate action, investigatory action, note) of each Xid."""
    last = 0
    for entry in _entries(go, "catalogEntry"):
        last = int(entry["Code"])
        then = _IN_WORDS.get(last, _action(entry["InvestigatoryResolution"]))
        note = "unused" if entry["Description"] == "Unused" else ""
        yield last, entry["Mnemonic"].partition(" /")[0], entry["ImmediateResolution"], then, note
    # the first name of a code is its own
    named = {int(code): name for name, code in reversed(_NAME.findall(header))}
    yield from ((code, named[code], "", "", "") for code in sorted(named) if code > last)


def nvlink(go: str) -> Iterator[str]:
    """Yield each case of the Xids 144 to 150 as a row of the file."""
    for entry in _entries(go, "nvlinkRule"):
        old, new = (entry[f"IntrinfoPatternV{version}"] for version in (1, 2))
        v1, v2, detail = (int(bits, 2) for bits in (old[-10:], new[-7:], old[6:12]))
        status, severity = int(entry["ErrorStatus"], 16), re.sub(r"[^\w ]", "", entry["Severity"]).lower()
        actions = f"{entry['Resolution']}, {_action(entry['Investigatory']).replace('/', '_')}"
        unit = f"{entry['Xid']}, {entry['Unit']}, 0x{v1:03x}, 0x{v2:02x}, {detail}"
        yield f"[{unit}, 0x{status:08x}, {actions}, {severity}]"


if __name__ == "__main__":
    go, header = (Path(argument).read_text(encoding="utf-8") for argument in sys.argv[1:])
    write_rows("nvidia/xid.yml", xids(go, header))
    write_rows("nvidia/nvlink5.yml", nvlink(go))

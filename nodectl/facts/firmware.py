"""Firmware that a host brings: the board's, the processors' microcode, and the disks'."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.facts.base import listed, matches, script, text_fact

# NAME VALUE a line
_SHOW = """\
cd /sys/class/dmi/id 2>/dev/null && for name in sys_vendor product_name bios_version bios_date; do
  value=
  read -r value 2>/dev/null <$name && printf '%s\\t%s\\n' "$name" "$value"
done
awk '/^microcode[ \\t]*: / && !seen[$0]++ { sub(/[ \\t]*: /, "\\t"); print }' /proc/cpuinfo 2>/dev/null
for disk in /sys/class/nvme/nvme*; do
  model= firmware=
  read -r model 2>/dev/null <"$disk/model" && read -r firmware <"$disk/firmware_rev" || continue
  printf 'nvme\\t%s\\t%s\\n' "$model" "$firmware"
done
exit 0
"""
_LINE = re.compile(r"(\w+)\s+(.*)")


@dataclass(frozen=True, slots=True)
class Firmware:
    """`board` are the files of /sys/class/dmi/id; `microcode` each revision once; `disks` the revisions by model.

    `drives` is the model of each NVMe disk.
    """

    board: Mapping[str, str]
    microcode: tuple[str, ...]
    disks: Mapping[str, tuple[str, ...]]
    drives: tuple[str, ...] = ()


def _parse(text: str) -> Firmware:
    board: dict[str, str] = {}
    microcode: list[str] = []
    disks: dict[str, set[str]] = {}
    drives: list[str] = []
    for match in matches(_LINE, text, "firmware"):
        name, value = match[1], match[2].strip()
        if name == "microcode":
            microcode.append(value)
        elif name == "nvme":
            model, _, revision = value.partition("\t")
            drives.append(model.strip())
            disks.setdefault(model.strip(), set()).add(revision.strip())
        else:
            board[name] = value
    revisions = {model: tuple(sorted(each)) for model, each in disks.items()}
    return Firmware(board, tuple(sorted(microcode)), revisions, tuple(sorted(drives)))


def _words(firmware: Firmware) -> str:
    return f"board {firmware.board.get('bios_version', '?')}, microcode {listed(firmware.microcode, '?')}"


FACT = text_fact("firmware", script("firmware", _SHOW, hardware=True), _parse, _words, row=132)

"""Errors that the memory controllers counted since boot (EDAC)."""

from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import rows, script, text_fact, whole

_SHOW = """\
cd /sys/devices/system/edac/mc 2>/dev/null || exit 3
for mc in mc[0-9]*; do
  [ -d "$mc" ] || exit 3
  ce= ue= kind= size=
  read -r ce <"$mc/ce_count"; read -r ue <"$mc/ue_count"
  read -r kind <"$mc/mc_name"; read -r size <"$mc/size_mb"
  printf '%s\\tcorrected=%s\\tuncorrected=%s\\tsize_mib=%s\\tkind=%s\\n' "$mc" "$ce" "$ue" "$size" "$kind"
done 2>/dev/null
"""


@dataclass(frozen=True, slots=True)
class MemoryController:
    """Errors that a memory controller counted since boot: corrected and uncorrected."""

    name: str
    corrected: int
    uncorrected: int
    kind: str | None = None
    size_mib: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryErrors:
    """EDAC's controllers; none where the kernel has no driver for them."""

    controllers: tuple[MemoryController, ...]


def _parse(text: str) -> MemoryErrors:
    return MemoryErrors(tuple(_controller(cells, named) for cells, named in rows(text)))


def _controller(cells: list[str], named: dict[str, str]) -> MemoryController:
    corrected, uncorrected = whole(named.get("corrected")), whole(named.get("uncorrected"))
    if not cells or corrected is None or uncorrected is None:
        raise ParseError(f"memory-errors: {cells!r} {named!r} has no counts")
    return MemoryController(cells[0], corrected, uncorrected, named.get("kind"), whole(named.get("size_mib")))


def _words(errors: MemoryErrors) -> str:
    bad = [mc for mc in errors.controllers if mc.corrected or mc.uncorrected]
    lines = (f"{mc.name} {mc.corrected} corrected, {mc.uncorrected} not" for mc in bad)
    return "; ".join(lines) or f"none on {len(errors.controllers)} controllers"


FACT = text_fact(
    "memory_errors",
    script("memory-errors", _SHOW, hardware=True),
    _parse,
    _words,
    absent="the kernel has no EDAC driver for this memory",
    row=130,
)

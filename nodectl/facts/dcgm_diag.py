"""How the last `dcgmi diag` of each test ended, as DCGM's host engine remembers it (DCGM 4 and later)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry, output
from nodectl.facts.dcgm_health import NO_ENGINE
from nodectl.model.recording import Command, Recording

# dcgm_fields.h: DCGM_FI_DEV_DIAG_*_RESULT, by the short names over their columns
_TESTS = {
    "MEMRES": (350, "memory"),
    "DIARES": (351, "diagnostic"),
    "PCIRES": (352, "pcie"),
    "STRRES": (353, "targeted_stress"),
    "POWRES": (354, "targeted_power"),
    "MBWRES": (355, "memory_bandwidth"),
    "MEMTRES": (356, "memtest"),
    "PLSRES": (357, "pulse_test"),
    "EUDRES": (358, "eud"),
    "CPUEUDRES": (359, "cpu_eud"),
    "SWRES": (360, "software"),
    "NVBRES": (361, "nvbandwidth"),
}
_FIELDS = ",".join(str(field) for field, _ in _TESTS.values())
_COMMAND = Command("dcgm-diag", ("dcgmi", "dmon", "-e", _FIELDS, "-c", "1"), deadline_s=15, hardware=True)
# what dcgmi says of numbers that its release does not have yet
_NO_FIELD = re.compile(r"\bfield", re.IGNORECASE)
_ROW = re.compile(r"[A-Z][\w-]* \d+\s+(.*)")


@dataclass(frozen=True, slots=True)
class DcgmDiag:
    """DCGM's error code by test, 0 where it passed; what did not run since the host engine's start is not here."""

    results: Mapping[str, int]


def _read(recording: Recording) -> DcgmDiag:
    done = entry(recording, _COMMAND.key)
    said = f"{done.stdout}{done.stderr}"
    if any(words in said.lower() for words in NO_ENGINE):
        raise AbsentError("DCGM's host engine does not run")
    if done.exit_status != 0 and _NO_FIELD.search(said):
        raise AbsentError("this release of DCGM does not keep results")
    return DcgmDiag(_parse(output(recording, _COMMAND.key)))


def _parse(text: str) -> dict[str, int]:
    head, *lines = text.splitlines() or [""]
    columns = head.split()
    if columns[:1] != ["#Entity"] or not set(columns[1:]) <= _TESTS.keys():
        raise ParseError(f"dcgm-diag: {head[:120]!r} is not the head of `dcgmi dmon -e {_FIELDS}`")
    results: dict[str, int] = {}
    for name, code in _cells(columns[1:], lines):
        # of the whole host, and so the same in each GPU's row
        results[name] = max(code, results.get(name, 0))
    return results


def _cells(columns: list[str], lines: list[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        cells = match[1].split() if (match := _ROW.fullmatch(line.rstrip())) else []
        if cells and len(cells) != len(columns):
            raise ParseError(
                f"dcgm-diag: {line[:160]!r} has {counted(len(cells), 'value')} under {counted(len(columns), 'name')}"
            )
        yield from ((_TESTS[name][1], int(cell)) for name, cell in zip(columns, cells, strict=False) if cell.isdigit())


def _words(diag: DcgmDiag) -> str:
    return ", ".join(f"{name} {code or 'passed'}" for name, code in diag.results.items()) or "none ran"


FACT = Fact("dcgm_diag", (_COMMAND,), _read, _words, row=166, quiet=True)

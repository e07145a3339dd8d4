"""NVIDIA's own tables of error codes (nodectl/data/nvidia/): Xids, NVLink's by their bits, SXids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from nodectl.common.resources import data_dir, table

# NVIDIA's actions in the table of NVLink
_GRAVEST = ("RESET_GPU", "XID_154_EVAL", "IGNORE")
# from this branch on the unit stands in other bits of the first number of a line
_UNIT_IN_LOW_BITS = 575
_NVLINK5 = re.compile(
    r"\): \d+,(?: pid=[^,]*, name=[^,]*,)? (?P<unit>[A-Z0-9_/]+) (?P<word>Non-?fatal|Fatal)\b.*?"
    r"\bLink (?P<link>-?\d{1,3}) \((?P<bits>0x[0-9a-fA-F]{1,8}) (?P<status>0x[0-9a-fA-F]{1,8})\b"
)


@dataclass(frozen=True, slots=True)
class XidCode:
    """One Xid as NVIDIA lists it: `immediate` and `investigatory` are its actions, empty if it names none."""

    code: int
    mnemonic: str
    immediate: str
    investigatory: str
    note: str

    @property
    def actions(self) -> str:
        """Both actions as one text."""
        named = " / ".join(dict.fromkeys(filter(None, (self.immediate, self.investigatory))))
        return f"{named or 'no action given'}{' (unused on Ampere and newer)' if self.note == 'unused' else ''}"


@dataclass(frozen=True, slots=True)
class NvlinkCode:
    """One case of an Xid from 144 to 150: the `unit` by its number (`v1` below R575), `detail` and `status`."""

    code: int
    unit: str
    v1: int
    v2: int
    detail: int
    status: int
    action: str
    next: str
    severity: str

    def is_of(self, bits: int, driver: int | None) -> bool:
        """Return whether a line's first number names this unit and detail, as drivers of that branch write it."""
        is_v1, is_v2 = bits & 0x3FF == self.v1, bits & 0x7F == self.v2
        old = is_v1 and (driver is None or driver < _UNIT_IN_LOW_BITS)
        new = is_v2 and (driver is None or driver >= _UNIT_IN_LOW_BITS)
        return (old or new) and bits >> 20 & 0x3F == self.detail


@dataclass(frozen=True, slots=True)
class SxidCode:
    """One SXid: `severity` is nonfatal, fatal (to a port), always fatal (to the fabric) or notable."""

    code: int
    severity: str
    name: str


@cache
def xid_codes() -> Mapping[int, XidCode]:
    """Every Xid that NVIDIA lists."""
    return {row[0]: XidCode(*row) for row in _rows("xid")}


@cache
def sxid_codes() -> Mapping[int, SxidCode]:
    """Every SXid that NVIDIA lists."""
    return {row[0]: SxidCode(*row) for row in _rows("sxid")}


@cache
def nvlink_codes() -> tuple[NvlinkCode, ...]:
    """Every case of NVLink's Xids."""
    return tuple(NvlinkCode(*row) for row in _rows("nvlink5"))


def _rows(name: str) -> list[list[Any]]:
    rows: list[list[Any]] = table(data_dir() / "nvidia" / f"{name}.yml")["rows"]
    return rows


def nvlink_cases(code: int, text: str, driver: int | None) -> tuple[NvlinkCode, ...]:
    """Return the cases that a line of Xid `code` tells of by its bits, the gravest first.

    Empty if it has no such bits.

    `driver` is the branch (580), None if it is not known.
    """
    line = _NVLINK5.search(text)
    if line is None:
        return ()
    bits, status = int(line["bits"], 16), int(line["status"], 16)
    cases = [case for case in nvlink_codes() if case.code == code and case.is_of(bits, driver)]
    same = [case for case in cases if case.status == status]
    return tuple(sorted(same or _by_bit(cases, status), key=lambda case: _GRAVEST.index(case.action)))


def _by_bit(cases: list[NvlinkCode], status: int) -> Iterator[NvlinkCode]:
    """Return the case of each bit of a status that has several; a status that a unit enumerates has no single bits."""
    if any(case.status & (case.status - 1) for case in cases):
        return
    yield from (case for case in cases if case.status and case.status & status)

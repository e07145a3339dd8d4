"""Numbers that tell of a person or a place though nothing says so: where they stand in a text, by their form.

In lines that anybody can write (a kernel's log, what follows a `#`) every longer number goes that has neither a known
label nor a unit; in what tools print, where numbers are what is read, only forms that no tool has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

Span = tuple[int, int]

_DATE = r"(?:19[2-9]\d|200\d)[-/.](?:0?[1-9]|1[0-2])[-/.](?:0?[1-9]|[12]\d|3[01])"
_BACKWARDS = r"(?:0?[1-9]|[12]\d|3[01])[-/.](?:0?[1-9]|[12]\d|3[01])[-/.](?:19[2-9]\d|200\d)"
_BEHIND = r"(?i)(?<![a-z])"
_WHERE = r"(?:lat(?:itude)?|lon(?:gitude)?|lng|gps|geo|coord(?:inate)?s?|location)"
_PLACE = r"(-?\d{1,3}\.\d{1,12}(?:[ ,;/]{1,3}-?\d{1,3}\.\d{1,12})?)"
# degrees, minutes and seconds, or decimals
_DEGREES = r"-?\d{1,3}(?:[ .:°'\u2032]{1,2}\d{1,12}){1,4}[°'\"\u2032\u2033]?"
_PERSONAL = (
    r"(?:pin|badge|phone|ext(?:ension)?|tel(?:efon|ephone)?|mobile?|fax|call|card|iban|account|born|birth(?:day|date)?|dob|ssn|passport"
    r"|employee|staff|personal)"
)
_ENDS = r"(?:ip|s?addr(?:ess)?|d?addr|peer|host|gw|gateway|server|src|dst|from|to|via)"
# of persons and places, in any text
_ANYWHERE = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![\w+.])(\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,6})(?![\w.])",
        r"(?<![\w.-])(\(?\d{3}\)?[ .-]\d{3}-\d{4})(?![\w.-])",
        r"(?<![\w.:-])(0\d{2,4}[/-]\d{4,9})(?![\w.:-])",
        rf"(?<![\w.-])({_DATE}|{_BACKWARDS})(?![\w.-])",
        r"(?<![\w.-])([A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?)(?![\w.-])",
        r"(-?\d{1,3}(?:\.\d{1,8})? ?°(?: ?\d{1,2}(?:\.\d{1,8})? ?['\u2032])?(?: ?\d{1,2}(?:\.\d{1,8})? ?[\"\u2033])?)",
        rf"(?<![\w.])({_DEGREES} ?[NSEW][,; ]{{1,3}}{_DEGREES} ?[NSEW])(?!\w)",
        rf"(?<![\w.])([NSEW] ?{_DEGREES}[,; ]{{1,3}}[NSEW] ?{_DEGREES})(?![\w.])",
        rf"{_BEHIND}{_WHERE}[\"']?[ \t:=]{{1,4}}{_PLACE}",
        r"(?<![\w.])(-?\d{1,2}\.\d{4,12}, ?-?\d{1,3}\.\d{4,12})(?![\w.])",
        r"(?<![\w.:/-])(0[1-9]\d{8,10})(?![\w.:/-])",
        rf"{_BEHIND}{_PERSONAL}(?:[ _-]?(?:no|nr|number|code|id))?[\"'.:#= \t]{{1,4}}(\+?\d[\d ./-]{{2,40}})",
        rf"{_BEHIND}{_ENDS}[\"']?[ \t:=]{{1,3}}(0x[0-9A-F]{{8}}|\d{{8,12}})(?![\w.])",
    )
)
_CARD = re.compile(r"(?<![\w.-])\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{1,7}(?![\w.-])")
_DOTTED = re.compile(r"(?<![\w.-])\d{1,4}(?:\.\d{1,4}){3}(?![\w-]|\.\d)")
# lines that anybody may write
_FREE = re.compile(
    r"^(?:<\d{1,3}>)?(?:\[ {0,12}\d{1,9}\.\d{1,9}\]|\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\S{8,40})"
    r"[ \t]?(.*)$"
    r"|[ \t]#[ \t](.*)$|^#[ \t](?=[^\s:=])([^:=\n]*)$",
    re.MULTILINE,
)
_WORD = re.compile(r"[^\W\d_]+")
_LOOSE = re.compile(
    r"(?<![\w.:/-])(?:\d{4,}|\d{3}-\d{4}|[A-Za-z]\d{3,4}|0[xX][0-9A-Fa-f]{8})(?:[ /-]\d{2,})*(?![\w:/]|\.\d|-\w)"
)
_PAIR = re.compile(r"(?<![\w.])-?\d{1,3}\.\d{3,12}[,; /]{1,3}-?\d{1,3}\.\d{3,12}(?![\w.])")
_SHORT_DATE = re.compile(r"(?<![\w.:/-])\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d{2})(?![\w.:/-])")
_LABEL = re.compile(r"(?:([^\W\d_]\w*)[\"']?[ \t]?|[)\]])[:=#] ?$")
_UNIT = re.compile(
    r" ?(?:[kKMGT]?i?[Bb](?:it)?(?:ps|/s)?|[munk]?s|sec(?:onds)?|[kMG]?Hz|[mk]?[WVA]|%|bytes?|pages?|packets?|GT/s)\b"
)
# what the kernel counts: `Killed process 4711 (python)`, `python[4711]: segfault`
_COUNTED = re.compile(r"(?:\w\[|\b(?i:process|pid|tid|task|cpu|sector|line|port|queue|qid|code) )$")
_LONG = 7
_NAMES = re.compile(r"(?<![\w/.-])([A-Z][^\W\d_]{1,30})[ ,]{1,2}([A-Z][^\W\d_]{1,30})(?![\w/-])")


def private_numbers(text: str, is_known: Callable[[str], bool], logins: frozenset[str]) -> Iterator[Span]:
    """Yield where they stand; `is_known` tells words of tools, `logins` are short names that only stand here."""
    for pattern in _ANYWHERE:
        yield from (match.span(1) for match in pattern.finditer(text))
    yield from (match.span() for match in _CARD.finditer(text) if _is_card(match.group()))
    yield from (match.span() for match in _DOTTED.finditer(text) if _is_octal(match.group()))
    for line in _FREE.finditer(text):
        start, end = line.span(line.lastindex or 0)
        yield from _in_free_text(text, start, end, is_known, logins)


def _in_free_text(
    text: str, start: int, end: int, is_known: Callable[[str], bool], logins: frozenset[str]
) -> Iterator[Span]:
    for match in _LOOSE.finditer(text, start, end):
        if not _is_measured(text, match, start, is_known):
            yield match.span()
    for pattern in (_PAIR, _SHORT_DATE):
        yield from (match.span() for match in pattern.finditer(text, start, end))
    for match in _WORD.finditer(text, start, end):
        word = match.group()
        if word in logins or (len(word) == 2 and word.islower() and not is_known(word)):
            yield match.span()
    # a first name may be any word; the name beside it is none
    for match in _NAMES.finditer(text, start, end):
        if not (is_known(match[1]) and is_known(match[2])):
            yield match.span(1)


def _is_measured(text: str, match: re.Match[str], start: int, is_known: Callable[[str], bool]) -> bool:
    """A tool's own number: its label is known and it is short, or it has a unit."""
    value = match.group()
    if value.startswith(("0x", "0X")):
        return not _is_address(int(value, 16))
    before = text[max(start, match.start() - 40) : match.start()]
    unit, label = _UNIT.match(text, match.end()) is not None, _LABEL.search(before)
    if label is None:
        return len(value) < _LONG and (unit or _COUNTED.search(before) is not None)
    # what follows a bracket is the number of a message: `SXid (PCI:0000:c1:00.0): 20034`
    return (label[1] is None or is_known(label[1])) and (len(value) < _LONG or unit)


def _is_card(text: str) -> bool:
    digits = [int(digit) for digit in text if digit.isdigit()]
    if not 13 <= len(digits) <= 19 or digits[0] not in (3, 4, 5, 6) or (text.isdigit() and len(digits) != 16):
        return False
    doubled = (digit * 2 - 9 * (digit > 4) if place % 2 else digit for place, digit in enumerate(reversed(digits)))
    return sum(doubled) % 10 == 0


def _is_octal(text: str) -> bool:
    """Return whether it is an address of a private network with octal parts; four padded parts are a version."""
    parts = text.split(".")
    octal = [len(part) > 2 and part[0] == "0" and set(part) <= set("01234567") for part in parts]
    if not any(octal) or all(len(part) == 3 for part in parts):
        return False
    values = [int(part, 8 if is_octal else 10) for part, is_octal in zip(parts, octal, strict=True)]
    return max(values) < 256 and values[0] > 0 and IPv4Address(bytes(values)).is_private


def _is_address(number: int) -> bool:
    octets = number.to_bytes(4, "big")
    return any(IPv4Address(each).is_private and each[0] for each in (octets, octets[::-1]))


def spellings(address: str) -> list[str]:
    """An IPv4 address as other numbers, always in one order: decimal, octal and hexadecimal, of either byte order."""
    packed = IPv4Address(address).packed
    numbers = [int.from_bytes(octets, "big") for octets in (packed, packed[::-1])]
    return [
        form.format(number)
        for number in numbers
        for form in ("{}", "0{:o}", "{:08x}", "{:08X}", "{:#010x}", "0x{:08X}")
    ]

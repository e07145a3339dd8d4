"""Free text by allow-list: what stays is of a known form, or a word that nodectl itself speaks of.

All else gets other letters and digits in its place, a word everywhere the same ones: lines, columns, signs and what was
equal stay so. Where a text says that a secret or a name follows (`password=`, `Reason=`, `//server/`, `user@`), it goes
even if it is a known word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from ipaddress import IPv4Address
from pathlib import Path

from nodectl.common.resources import payload_dir
from nodectl.payload.common.secret_words import PRIVATE, VALUE

# words, joined to names, versions and paths by dashes, dots and the like
CHUNK = re.compile(r"\w+(?:[-.+~]\w+)*")
JOINTS = re.compile(r"[-.+~_]")
_SPEAKING = {".py", ".yml", ".yaml", ".sh", ".json", ".out", ".err"}
_WITH_COMMENTS = {".py", ".yml", ".yaml", ".sh"}
_TOLD = re.compile(r'^[ \t]*"""[\s\S]*?"""|(?:^[ \t]*|[ \t]{2})#[ \t].*$', re.MULTILINE)
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?:\.\d{1,5})*(?!\d)")
# a host of the examples: `node01`, and the peer of a site that is called so, too
_COUNTED = re.compile(r"[a-z-]+0\d+")


def plain(chunk: str) -> str:
    """Return a word without case, and with 0 for a number: `mlx5_3` is `mlx0_0`; long numbers and a host's stay."""
    lower = chunk.lower()
    return lower if _COUNTED.fullmatch(lower) else _NUMBER.sub("0", lower)


@cache
def vocabulary() -> frozenset[str]:
    """Each chunk of the package's files, and each word of one: labels of tools, patterns of parsers, recorded hosts."""
    files = (path for path in payload_dir().parent.rglob("*") if path.suffix in _SPEAKING and path.is_file())
    chunks = {chunk for path in files for chunk in _chunks(path)}
    return frozenset(plain(chunk) for chunk in chunks if not _COUNTED.fullmatch(chunk))


def _chunks(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    # in what is told to its reader stand names as examples, and no tool says it
    text = _TOLD.sub("", text) if path.suffix in _WITH_COMMENTS else text
    # `\bserial\b` of a pattern names the word serial, and no word bserial
    text = re.sub(r"\\[A-Za-z]", " ", text)
    for chunk in set(CHUNK.findall(text)):
        yield chunk.lower()
        yield from JOINTS.split(chunk.lower())


# Numbers that tell of a person or a place though nothing says so: where they stand in a text, by their form.
# In lines that anybody can write (a kernel's log, what follows a `#`) every longer number goes that has neither a
# known label nor a unit; in what tools print, where numbers are what is read, only forms that no tool has.

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
    r"|employee|staff|personal|contract|invoice|ticket|customer)"
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
_NUMBERS_COUNTED = re.compile(r"(?:\w\[|\b(?i:process|pid|tid|task|cpu|sector|line|port|queue|qid|code) )$")
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
    """Return whether it is a tool's own number: its label is known and it is short, or it has a unit."""
    value = match.group()
    if value.startswith(("0x", "0X")):
        return not _is_address(int(value, 16))
    before = text[max(start, match.start() - 40) : match.start()]
    unit, label = _UNIT.match(text, match.end()) is not None, _LABEL.search(before)
    if label is None:
        return len(value) < _LONG and (unit or _NUMBERS_COUNTED.search(before) is not None)
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
    return any(IPv4Address(packed).is_private and packed[0] for packed in (octets, octets[::-1]))


def spellings(address: str) -> list[str]:
    """Return an IPv4 address as other numbers, always in one order.

    Decimal, octal and hexadecimal, of either byte order.
    """
    packed = IPv4Address(address).packed
    numbers = [int.from_bytes(octets, "big") for octets in (packed, packed[::-1])]
    return [
        form.format(number)
        for number in numbers
        for form in ("{}", "0{:o}", "{:08x}", "{:08X}", "{:#010x}", "0x{:08X}")
    ]


# Free text by allow-list: what stays is of a known form, or a word that nodectl itself speaks of.
# All else gets other letters and digits in its place, a word everywhere the same ones: lines, columns, signs and what
# was equal stay so. Where a text says that a secret or a name follows (`password=`, `Reason=`, `//server/`, `user@`),
# it goes even if it is a known word.

# what a tool draws with and how it writes a sign stays, and is no letter of the word behind it
_TOKEN = re.compile(
    r"\x1b\[[0-9;]*[A-Za-z] | \\(?:u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|[0-7]{3}|[bfnrtu\\/\"'])? | " + CHUNK.pattern,
    re.VERBOSE,
)
_FORMS = re.compile(
    r"""
    \d+ (?:\.\d+)*                               # a count, a version
  | 0[xX][0-9A-Fa-f]{1,16}
  | (?=[a-f]*\d|[A-F]*\d) [0-9A-Fa-f]{1,4}       # of a PCI address, of a GID
  | [fF]+ | [0-9a-f]{0,8}[f0]{8}                 # a mask
  | [A-Za-zµμΩ]{1,2} | [A-Za-z]\d{1,4}          # of other scripts two signs are a name
  | \d{1,8}T\d{1,6}Z?                            # of a time
  | \d{1,2}x[SDQFEHNX]DR\d{0,2} | GPU0{4,8}      # an InfiniBand link; a PCI address behind its GPU
  | (?:en|ib|ro|sl|wl|ww) (?:[oPpsfndiu]\d{1,5}|np\d{1,3}|b\d{1,3}|c\d{1,3}){1,6} (?:v\d{1,3})?   # an interface
    """,
    re.VERBOSE,
)
_QUANTITY = re.compile(r"\d+(?:\.\d+)?([^\W\d_]{1,5})")
_PREFIXED = re.compile(r"(?i)(?:non|re|un|pre|auto|multi)-([^\W\d_]+)")
_ALLOWED_COUNTED = re.compile(r"([^\W\d_]{3,})(\d{1,2})")
_VERSION = re.compile(r"[vV]?\d[\w.]*[-.+~_].+")
_PARTS = re.compile(r"[^\W_]+")
_MODEL = re.compile(r"[A-Za-z0-9]{1,20}(?:[-+][A-Za-z0-9]{1,20}){0,4}")

_OWNED = (
    r"(?:user(?:_?name|_?id)?|(?:a|e|fs|ou|s)?[ug]id|login|owner|account|e?mail|contact|author|operator|domain|realm|workgroup|tenant|customer"
    r"|organi[sz]ation|company|project|site|rack|location|asset(?:[ _]?tag)?|serial(?:[ _]?(?:number|no))?"
    r"|(?:node)?host[ _]?name|host|nodehostname|node_?addr|nodename|server|peer|proxy|upstream|gateway|addr_?host)"
)
# the value behind each of these goes, whatever it is
_GIVEN_AWAY = (
    re.compile(rf"(?i){PRIVATE}[\"']?\s{{0,40}}[:=]\s{{0,4}}(?:(?:Basic|Bearer)\s)?{VALUE}"),
    re.compile(rf"(?i)(?<![A-Za-z]){_OWNED}[\"']?\s{{0,60}}[:=]\s{{0,4}}{VALUE}"),
    re.compile(rf"(?i)(?<!\S)--?[\w-]{{0,40}}(?:{PRIVATE}|{_OWNED})[ =\x1f]{VALUE}"),
    re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----([\s\S]{0,20000}?)(?:-----END|\Z)"),
    re.compile(r"\barn:[\w-]{1,20}:[\w-]{0,40}:[\w-]{0,40}:(\d{12}:[^\s,;\"'<>]{0,400})"),
    # behind a blank only what has a digit: `password is required` tells of none
    re.compile(rf"(?i)(?<![a-z])(?:{PRIVATE}|community)\s{{1,4}}(?:is )?[\"']?((?=\S{{0,99}}\d)[^\s<\"']{{4,400}})"),
    re.compile(rf"(?i)<(?:\w{{1,40}}[:_-])?{PRIVATE}>([^<\n]{{1,4000}})</"),
    re.compile(r"(?i)\b(?:https?|wss?|s?ftps?|s3|gs)://([^\s\"'<>]+)"),
    re.compile(r"(?i)\bidentified by [\"']?([^\s\"']+)"),
    re.compile(r"(?<!\S)-p[ \x1f]?(\d{6,}\S*)"),
    re.compile(rf"(?<![\w-])key={VALUE}"),
    # of a key in hexadecimal, and of a dump of a file, each group is a number as any
    re.compile(r"(?i)(?<!\S)((?=[0-9 ]*[a-f])(?:[0-9a-f]{4} ){5,400}[0-9a-f]{4})(?!\S)"),
    re.compile(r"(?m)(?:^|\x1f)[0-9a-f]{6,8}:? {1,3}((?:[0-9a-f]{2,4} {1,2}){7,32}[^\n]{0,100})"),
    re.compile(r"\b(?:Reason|Comment|Extra|Features)=([^\n]{0,4000}?)(?=[ \t]\w{1,60}=|[ \t]{0,200}$)", re.MULTILINE),
    re.compile(r"(?i)\bhost ?name (?:set )?to:? <?([^\s>]+)"),
    re.compile(r"(?i)\b(?:for|from|by|of) (?:user|host|client|server) ([^\s:;,]+)"),
    re.compile(r"(?i)\bserver ([^\s:;,]+)(?=:? (?:not responding|OK|has not responded))"),
    re.compile(r"(?m)^user (\S+)$"),
    # behind a blank only what has a digit: `serial port` is none
    re.compile(
        r"(?i)(?<![a-z])(?:s/?n|serial(?:[ _]?(?:number|no\.?))?|wwi?n|eui) #?((?=[^\s,;]{0,63}\d)[^\s,;\"'<>]{4,64})"
    ),
    re.compile(r"(?i)(?<![a-z])(?:rack|cage|cabinet|room|building) #?((?=[a-z-]{0,12}\d)[a-z0-9-]{1,20})(?![\w.])"),
    # a MAC address as switches write it
    re.compile(r"(?<![\w.])([0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2})(?![\w.])"),
    re.compile(r"(?m)^/etc/hosts\t(?!127\.0\.0\.|::1|f[ef]0)\S{1,64}[ \t]{1,64}([^#\n]{1,4000})"),
    re.compile(r"(?<=//)([^/\s\"'<>]*@)"),
    re.compile(r"(?:(?<=[\s\"'(,=])|(?<=^))(?://|\\\\)([^\s\"'<>,]+)", re.MULTILINE),
    re.compile(r"(?<![\w./:@-])([A-Za-z0-9][\w.,-]{1,250}):/(?!/)"),
    re.compile(r"(?<![\w.+-])([\w.+-]{1,100})@(?![\w-]{0,100}\.(?:service|timer|socket|slice|scope)\b)"),
    re.compile(r"(?<=\w)@([A-Za-z0-9][\w.-]{1,250})(?![\w.-]|\.service)"),
    re.compile(r"/(?:homes?|[Uu]sers?)/([^/\s\"':,;]{1,64})"),
)
_SHORT_FOLDER = re.compile(r"(?<=/)([a-z][a-z0-9]?)(?![\w.-])")
# `option=value`: where the option is none that nodectl knows, its value is none that is known either
_OPTION = re.compile(rf"(?<![\w./-])([A-Za-z_][\w.-]{{0,80}})={VALUE}")
# a maker's name for what it sells: from its driver, its firmware or the PCI database, and set by no site
_MAKERS = re.compile(
    r"^[ \t]*Product (?:Name|Brand|Architecture)[ \t]*:(.*)$|^Model name:(.*)$|^GPU \d+: (.*?) \(UUID"
    r"|^[0-9a-f:]{5,13}\.[0-7] [^:\n]{3,60}: (.*)$|^\d+, ([^,\n]{3,60}), GPU-",
    re.MULTILINE,
)
_PLAIN_VALUES = frozenset(
    (
        *("n/a", "na", "none", "null", "(null)", "root", "true", "false", "yes", "no", "on", "off", "unknown"),
        *("localhost", "auto", "any", "all", "0", "1", "-", "*", "{}", "[]"),
    )
)
# logins that images come with: no person's, and words of the tools besides
NOBODY = frozenset(
    ("root", "nobody", "ubuntu", "debian", "rocky", "centos", "fedora", "admin", "user", "core", "nvidia", "slurm")
)

# characters of a text that is worth keeping
_REMEMBERED = 1 << 16

Spans = list[tuple[int, int]]


class Allowed:
    """`name` gives a word's other letters."""

    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name
        self._known = set(vocabulary())
        self._logins: frozenset[str] = frozenset()
        self._seen: dict[str, str] = {}

    @property
    def size(self) -> int:
        """How many words are known; they never get fewer."""
        return len(self._known)

    def mask_logins(self, names: Iterable[str]) -> None:
        """Logins of a letter or two: they go where text is free, and as folders."""
        self._logins |= set(names)

    def keep(self, public_words: Iterable[str]) -> None:
        """Words that are no secret."""
        before = len(self._known)
        self._known |= {plain(word) for word in public_words}
        if len(self._known) > before:
            self._seen.clear()

    def learn(self, text: str) -> None:
        """Learn the names of what makers sell: they stay in all texts."""
        places = (next(filter(None, match.groups()), "") for match in _MAKERS.finditer(text))
        self.keep({word for place in places for word in _MODEL.findall(place) if not re.search(r"\d{5}", word)})

    def is_known(self, word: str) -> bool:
        """Return whether nodectl's own files have it."""
        return plain(word) in self._known

    def given_away(self, text: str) -> Spans:
        """Return where a name or a secret stands by what is said before or behind it, in order."""
        spans = list(_said(text) if len(text) <= _REMEMBERED else _said.__wrapped__(text))
        spans += [match.span(2) for match in _OPTION.finditer(text) if not self._stays(match[1])]
        spans += private_numbers(text, self.is_known, self._logins)
        if self._logins:
            spans += [match.span(1) for match in _SHORT_FOLDER.finditer(text) if match[1] in self._logins]
        private = [span for span in spans if text[slice(*span)].strip("\"'").lower() not in _PLAIN_VALUES]
        return _joined(private)

    def text(self, text: str, spans: Spans, offset: int) -> str:
        """Return a part of a text, which begins at `offset` of the whole, with other words for what is not known."""
        starts = [start for start, _ in spans]

        def replaced(match: re.Match[str]) -> str:
            at = bisect_right(starts, match.start() + offset) - 1
            return self._token(match.group(), inside=at >= 0 and match.start() + offset < spans[at][1])

        return _TOKEN.sub(replaced, text)

    def _token(self, token: str, *, inside: bool) -> str:
        if token[0] in "\x1b\\":
            # a letter that is written as its number is a letter
            return "\\u00b7" if token.startswith("\\u") and len(token) == 6 and int(token[2:], 16) > 127 else token
        if inside:
            return token if token.lower() in NOBODY else self._other(token)
        if token not in self._seen:
            self._seen[token] = self._chunk(token)
        return self._seen[token]

    def _chunk(self, chunk: str) -> str:
        if self._stays(chunk):
            return chunk
        if counted := _ALLOWED_COUNTED.fullmatch(
            chunk
        ):  # what begins alike goes on beginning alike: interfaces are chosen so
            return self._name(counted[1]) + counted[2]
        if _VERSION.fullmatch(chunk):
            return _PARTS.sub(lambda part: part[0] if self._stays(part[0]) else self._name(part[0]), chunk)
        return self._other(chunk)

    def _stays(self, chunk: str) -> bool:
        if _FORMS.fullmatch(chunk) or plain(chunk) in self._known:
            return True
        if quantity := _QUANTITY.fullmatch(chunk):
            return plain(quantity[1]) in self._known
        if negated := _PREFIXED.fullmatch(chunk):
            return plain(negated[1]) in self._known
        # names of counters and settings are made of words; those of hosts have dashes and dots
        return "_" in chunk and all(not part or self._stays(part) for part in chunk.split("_"))

    def _other(self, chunk: str) -> str:
        return _PARTS.sub(lambda part: self._name(part[0]), chunk)


@lru_cache(maxsize=512)  # what the hosts of a fleet print is alike
def _said(text: str) -> tuple[tuple[int, int], ...]:
    return tuple(match.span(1) for pattern in _GIVEN_AWAY for match in pattern.finditer(text))


def _joined(spans: Iterable[tuple[int, int]]) -> Spans:
    joined: Spans = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined

"""Free text by allow-list: what stays is of a known form, or a word that nodectl itself speaks of.

All else gets other letters and digits in its place, a word everywhere the same ones: lines, columns, signs and what was
equal stay so. Where a text says that a secret or a name follows (`password=`, `Reason=`, `//server/`, `user@`), it goes
even if it is a known word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache

from nodectl.recordings.numbers import private_numbers
from nodectl.recordings.vocabulary import CHUNK, plain, vocabulary

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
_COUNTED = re.compile(r"([^\W\d_]{3,})(\d{1,2})")
_VERSION = re.compile(r"[vV]?\d[\w.]*[-.+~_].+")
_PARTS = re.compile(r"[^\W_]+")
_MODEL = re.compile(r"[A-Za-z0-9]{1,20}(?:[-+][A-Za-z0-9]{1,20}){0,4}")

_PRIVATE = (
    r"(?:pass(?:w(?:or)?d|phrase)?|pwd|pw|secret|token|credentials?|cookie|(?:api|access|private|secret|auth|license)[_-]?key"
    r"|auth(?:orization|entication)?|psk|pin)"
)
_OWNED = (
    r"(?:user(?:_?name|_?id)?|(?:a|e|fs|ou|s)?[ug]id|login|owner|account|e?mail|contact|author|operator|domain|realm|workgroup|tenant|customer"
    r"|organi[sz]ation|company|project|site|rack|location|asset(?:[ _]?tag)?|serial(?:[ _]?(?:number|no))?"
    r"|(?:node)?host[ _]?name|host|nodehostname|node_?addr|nodename|server|peer|proxy|upstream|gateway|addr_?host)"
)
_VALUE = r"""("(?:[^"\\\n]|\\.){0,4000}"|'[^'\n]{0,4000}'|[^\s,;&"'<>]+)"""
# the value behind each of these goes, whatever it is
_GIVEN_AWAY = (
    re.compile(rf"(?i){_PRIVATE}[\"']?\s{{0,40}}[:=]\s{{0,4}}(?:(?:Basic|Bearer)\s)?{_VALUE}"),
    re.compile(rf"(?i)(?<![A-Za-z]){_OWNED}[\"']?\s{{0,60}}[:=]\s{{0,4}}{_VALUE}"),
    re.compile(rf"(?i)(?<!\S)--?[\w-]{{0,40}}(?:{_PRIVATE}|{_OWNED})[ =]{_VALUE}"),
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
_OPTION = re.compile(rf"(?<![\w./-])([A-Za-z_][\w.-]{{0,80}})={_VALUE}")
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

    def keep(self, words: Iterable[str]) -> None:
        """Words that are no secret."""
        before = len(self._known)
        self._known |= {plain(word) for word in words}
        if len(self._known) > before:
            self._seen.clear()

    def learn(self, text: str) -> None:
        """The names of what makers sell stay in all texts."""
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
        return _joined((start, end) for start, end in spans if not _is_plain(text[start:end]))

    def text(self, text: str, spans: Spans, offset: int) -> str:
        """A part of a text, which begins at `offset` of the whole, with other words for what is not known."""
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
        if counted := _COUNTED.fullmatch(chunk):  # what begins alike goes on beginning alike: interfaces are chosen so
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


def _is_plain(value: str) -> bool:
    return value.strip("\"'").lower() in _PLAIN_VALUES


def _joined(spans: Iterable[tuple[int, int]]) -> Spans:
    joined: Spans = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined

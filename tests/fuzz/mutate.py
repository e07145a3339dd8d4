"""Changes that terminals, schedulers, broken disks and spiteful hosts make to a tool's output."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

LONGEST = 65_536

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"[A-Za-z_]{2,}")
_ODD_VALUES = (
    *(
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "ERR!",
        "[Unknown Error]",
        "Unknown Error",
        "nan",
        "-inf",
        "1e999",
        "0x",
        "-1",
    ),
    *("<unknown>", "9" * 400, "9" * 5000, "0" * 60, "1_000", "١٢", "²", "½", "1,5", "", " ", "\x00", "--", "null"),
    *("true", "[]", "{}", "x16", "%s"),
)
_NOISE = (
    *("\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b[2J\x1b[H", "\x1b", "\r", "\r\n", "\t", "\x0b\x0c", "\x7f\x08"),
    *("\x85", "\u2028", "\ufeff", "\ud7ff", "\U0010ffff", "$(reboot)", "`id`", "; rm -rf /", "../../etc/passwd"),
    *("<script>alert(1)</script>", "%n%n", "'\"\\", "[1,0]<stdout>:", "0: ", "user@node:~$ ", "NCCL INFO x"),
    *("{", "}", "[", '"', ":", "#", "|", "=" * 30, "-" * 30),
)
_RUNS = (
    *(
        "a",
        " ",
        "9",
        "\t",
        "(",
        "[",
        "{",
        '"',
        ".",
        ",",
        "-",
        ":",
        "x ",
        "0 ",
        "\\",
        "\r",
        "\x1b[",
        "é",
        "<",
        "=",
        "a:",
    ),
)

Change = Callable[[random.Random, str], str]


def mutated(rng: random.Random, texts: Sequence[str]) -> str:
    """One of the texts after one to five changes, spliced with another at times."""
    text = rng.choice(texts)
    if rng.random() < 0.1:
        text = _splice(rng, text, rng.choice(texts))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        text = rng.choice(_CHANGES)(rng, text)[:LONGEST]
    return text


def _splice(rng: random.Random, one: str, other: str) -> str:
    return one[: rng.randint(0, len(one))] + other[rng.randint(0, len(other)) :]


def _cut(rng: random.Random, text: str) -> str:
    return text[: rng.randint(0, len(text))]


def _behead(rng: random.Random, text: str) -> str:
    return text[rng.randint(0, len(text)) :]


def _on_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(7):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = lines[at][: rng.randint(0, len(lines[at]))]
        case 4:
            lines[at : at + 2] = ["".join(lines[at : at + 2])]
        case 5:
            lines[at] = rng.choice(("", " ", "\t", "    ")) + lines[at].strip()
        case _:
            lines[at:at] = [lines[at]] * rng.choice((10, 300))
    return "\n".join(lines)


def _on_columns(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    words = re.split(r"(\s+|,)", lines[at])
    match rng.randrange(3):
        case 0:
            del words[rng.randrange(len(words))]
        case 1:
            rng.shuffle(words)
        case _:
            words = [word for word in words if word.strip() or rng.random() < 0.5]
    lines[at] = "".join(words)
    return "\n".join(lines)


def _replace(rng: random.Random, text: str, pattern: re.Pattern[str], values: Sequence[str]) -> str:
    found = list(pattern.finditer(text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + rng.choice(values) + text[match.end() :]


def _odd_number(rng: random.Random, text: str) -> str:
    return _replace(rng, text, _NUMBER, _ODD_VALUES)


def _odd_word(rng: random.Random, text: str) -> str:
    return _replace(rng, text, _WORD, _ODD_VALUES)


def _insert(rng: random.Random, text: str, what: str) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + what + text[at:]


def _noise(rng: random.Random, text: str) -> str:
    return _insert(rng, text, rng.choice(_NOISE))


def _noise_line(rng: random.Random, text: str) -> str:
    return _insert(rng, text, f"\n{rng.choice(_NOISE)}\n")


def _run(rng: random.Random, text: str) -> str:
    return _insert(rng, text, rng.choice(_RUNS) * rng.choice((50, 3000, 30_000)))


def _flip(rng: random.Random, text: str) -> str:
    if not text:
        return text
    at = rng.randrange(len(text))
    return text[:at] + chr(rng.choice((rng.randrange(32, 127), rng.randrange(0x250)))) + text[at + 1 :]


def _separators(rng: random.Random, text: str) -> str:
    one, other = rng.choice(
        (("\t", " "), (" ", "\t"), ("\n", "\r\n"), (":", " :"), (",", ";"), ("  ", " "), ("\n", "\n\n"))
    )
    return text.replace(one, other)


_CHANGES: tuple[Change, ...] = (
    *(_cut, _behead, _on_lines, _on_lines, _on_columns, _on_columns, _odd_number, _odd_number, _odd_word),
    *(_noise, _noise_line, _run, _flip, _flip, _separators),
)

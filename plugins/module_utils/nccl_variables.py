# SPDX-License-Identifier: Apache-2.0
"""The variables that NCCL and its plug-ins read: since when, which values each takes, which only debugging may set.

The role nccl_env refuses by it, and nodectl judges profiles and hosts by it.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# NCCL cuts names and values at 1023 characters, trims nothing, and knows no quotes
MAX_CHARS = 1023
# a slip of a letter or two, and not another variable of a newer NCCL
_NEAR = 0.9
# of short words, beside which plug-ins have names of their own
_SLIP = 0.75
_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|[0-9]+)\Z")
_FUNCTIONS = "AllGather|AllReduce|AlltoAll|Broadcast|Gather|Recv|Reduce|ReduceScatter|Scatter|Send|SendRecv"
_OURS = ("NCCL_", "OFI_NCCL_")


class Variable(NamedTuple):
    """A row of the table: a `name` that ends with `*` is a family, and an empty `since` or `until` is no bound."""

    name: str
    since: str
    until: str
    debug: bool
    values: str
    source: str


@lru_cache(maxsize=1)
def variables() -> dict[str, Variable]:
    """All rows of the table by their names."""
    rows = {}
    for line in Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, since, until, debug, values, source = ("" if cell == "-" else cell for cell in line.split("\t"))
            rows[name] = Variable(name, since, until, debug == "debug", values, source)
    return rows


def variable(name: str) -> Variable | None:
    """Return the row of a variable, or of the family that it belongs to; None if nothing is known of it."""
    rows = variables()
    families = (row for row in rows.values() if row.name.endswith("*") and name.startswith(row.name[:-1]))
    return rows.get(name) or next(families, None)


def is_debug_variable(name: str) -> bool:
    """Return whether the guide has it in its category of debugging: not to be used in production nor kept."""
    return name in variables() and variables()[name].debug


def why_no_name(name: str) -> str:
    """Return why no variable of NCCL or of a plug-in can be meant by that name; "" if one can.

    A name that is not in the table and like none there may be a newer NCCL's, or another plug-in's.
    """
    if len(name) > MAX_CHARS:
        return f"NCCL cuts names at {MAX_CHARS} characters"
    if not _NAME.match(name) or not (variable(name) or name.startswith(_OURS)):
        return "neither NCCL nor a plug-in reads a variable of that name"
    if name == "NCCL_CONF_FILE":
        return "it names the file that NCCL reads first, so that NCCL takes it from the environment alone"
    near = "" if variable(name) else _nearest(name, variables(), _NEAR)
    return f"no NCCL reads a variable of that name; did you mean {near}?" if near else ""


def why_no_text(value: str) -> str:
    """Return why NCCL would not read the very same from its file; "" if it would."""
    if not value or value != value.strip():
        return f"{value!r}: NCCL trims nothing, so a value may not be empty or begin or end with a space"
    if not value.isprintable():
        return f"{value!r}: a value of nccl.conf is one line of printable characters"
    if value[0] in "\"'" or value[-1] in "\"'":
        return f"{value!r}: NCCL knows no quotes, they would become part of the value"
    return f"NCCL cuts values at {MAX_CHARS} characters; this one has {len(value)}" if len(value) > MAX_CHARS else ""


def asks_for_ib(env: Mapping[str, str]) -> bool:
    """NCCL may use InfiniBand or RoCE alone: where it finds neither, it ends with 'network IB not found'."""
    return env.get("NCCL_NET", "").upper() == "IB"


def is_set(env: Mapping[str, str], name: str) -> bool:
    """Return whether a variable that is a switch stands on another number than 0."""
    return env.get(name, "0") not in ("", "0")


def why_not_together(env: Mapping[str, str]) -> str:
    """Return why no NCCL works with all of these variables, whatever the host; "" if it may."""
    if not asks_for_ib(env) or not is_set(env, "NCCL_IB_DISABLE"):
        return ""
    taken = f"NCCL_IB_DISABLE={env['NCCL_IB_DISABLE']} takes that network away"
    return f"NCCL_NET=IB is set, and {taken}: NCCL ends with 'network IB not found'"


def refusals(env: Mapping[str, str]) -> list[str]:
    """Return why these variables may not stand in NCCL's file, one sentence each."""
    texts = {str(name): str(value) for name, value in env.items()}
    reasons = {
        f"{name}={value}": why_no_name(name) or why_no_text(value) or why_no_value(name, value)
        for name, value in texts.items()
    }
    together = why_not_together(texts)
    return [f"{what}: {why}" for what, why in reasons.items() if why] + ([together] if together else [])


def why_no_value(name: str, value: str) -> str:
    """Return why NCCL would read that value otherwise than it is meant; "" if it would not, or nothing is known."""
    row = variable(name)
    if row is None or not row.values or any(_fits(value, kind) for kind in row.values.split(" or ")):
        return ""
    return f"{name} takes {' or '.join(_words(kind) for kind in row.values.split(' or '))}"


def _nearest(name: str, candidates: Iterable[str], near: float) -> str:
    return next(iter(get_close_matches(name, list(candidates), 1, near)), "")


def _fits(value: str, kind: str) -> bool:
    form, _, rest = kind.rpartition(" ")
    bounds = re.fullmatch(r"(\d+)\.\.(\d*)", kind)
    if kind == "text":
        return True
    if kind == "int" or bounds:
        number = int(value, 0 if value.lstrip("+-")[:2].lower() == "0x" else 10) if _INTEGER.match(value) else None
        low, high = (bounds[1], bounds[2]) if bounds else ("", "")
        return number is not None and (not low or number >= int(low)) and (not high or number <= int(high))
    if form == "functions":
        return all(_is_selection(entry, rest) for entry in value.split(";"))
    if form == "list":
        return all(_is_word(word.lstrip("^"), rest) for word in value.split(","))
    if form == "any":
        return all(_is_word(word, rest) for word in value.split("|"))
    names = rest.lower().split("|")
    if form == "name" and value.lower() not in names and not _nearest(value.lower(), names, _SLIP):
        return True
    return _is_word(value, rest)


def _is_word(value: str, names: str) -> bool:
    exact = names.startswith("=")
    pattern = "|".join(re.escape(word).replace(":n", ":[0-9]+") for word in names.lstrip("=").split("|"))
    return re.fullmatch(pattern, value, 0 if exact else re.IGNORECASE) is not None


def _is_selection(entry: str, allowed: str) -> bool:
    """`[function:][^]name,name…`, as NCCL_ALGO and NCCL_PROTO have it since 2.24."""
    function, colon, names = entry.rpartition(":")
    named = not colon or _is_word(function, _FUNCTIONS)
    return named and all(_is_word(name, allowed) for name in re.sub(r"\A\^", "", names).split(","))


def _words(kind: str) -> str:
    form, _, rest = kind.rpartition(" ")
    bounds = re.fullmatch(r"(\d+)\.\.(\d*)", kind)
    if bounds:
        return f"a whole number from {bounds[1]} to {bounds[2]}" if bounds[2] else f"a whole number from {bounds[1]} on"
    if kind == "int":
        return "a whole number"
    names = ", ".join(rest.lstrip("=").split("|"))
    many = {
        "list": "a list, apart by commas, of",
        "any": "one or more, apart by |, of",
        "functions": "a list of",
        "name": "a plug-in's name, or one of",
    }
    return f"{many.get(form, 'one of')} {names}" + (", in capitals" if rest.startswith("=") else "")

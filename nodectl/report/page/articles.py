"""Tables of `bench` beside what the articles claim: each figure measured, theirs, and whether the two can be compared.

The documents differ by table; a figure of theirs stands in all of them as an object with `comparable` and `because`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodectl.common.units import digits
from nodectl.model.status import Status
from nodectl.report.page.blocks import Block, Cell, Mark, Number, Section, Table, Text
from nodectl.report.page.content import Benched

_COLUMNS = ("Measured", "What", "Here", "Unit", "The article", "Its unit", "Its row", "Comparable", "Because")
# what names a row, in the documents that have rows
_NAMES = ("name", "rate", "what", "mode", "host", "batch_size")
# where a row keeps the value of a column of the article's
_PLACES = ("training", "retrieval")
_DEEPEST = 8
_MOST = 10**300


def articles_section(benched: Sequence[Benched]) -> Section:
    """Return a table for each document."""
    missing = "No table of the articles is given: `nodectl --output json bench …` into files, and `--from FILE`."
    return Section("articles", "Beside the articles", tuple(map(_table, benched)), missing)


def _table(one: Benched) -> Block:
    rows = list(_rows(one))
    if not rows:
        return Text(f"{one.name} ({one.origin.source}) holds no figure beside one of an article.")
    return Table(f"{one.name}, beside the article", _COLUMNS, rows, one.origin)


def _rows(one: Benched) -> Iterator[tuple[Cell, ...]]:
    for owner, beside in _besides(one.document):
        for column, theirs in beside:
            reasons = theirs.get("because")
            because = "; ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons or "")
            yield (
                _name(owner),
                column,
                *_here(owner, column),
                Number(_number(theirs.get("value", theirs.get("before")))),
                str(theirs.get("unit") or ""),
                str(theirs.get("row") or ""),
                Mark(Status.OK, "yes") if theirs.get("comparable") else Mark(Status.WARNING, "no"),
                because,
            )


def _besides(node: object, depth: int = 0) -> Iterator[tuple[Mapping[str, Any], list[tuple[str, Mapping[str, Any]]]]]:
    """Every object that has figures of the article beside it, with these by their column."""
    if depth > _DEEPEST:
        return
    if isinstance(node, dict):
        beside = list(_figures(node.get("article")))
        if beside:
            yield node, beside
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _besides(child, depth + 1)


def _figures(article: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(article, list):
        yield from (pair for one in article for pair in _figures(one))
    elif isinstance(article, dict) and "comparable" in article:
        yield str(article.get("column") or ""), article
    elif isinstance(article, dict):
        yield from ((str(name), one) for name, one in article.items() if isinstance(one, dict) and "comparable" in one)


def _name(owner: Mapping[str, Any]) -> str:
    conditions = owner.get("conditions")
    known = {**conditions, **owner} if isinstance(conditions, dict) else owner
    words = [value for name in _NAMES if isinstance(value := known.get(name), str)]
    numbers = [
        f"{name.replace('_', ' ')} {value}" for name in _NAMES if isinstance(value := known.get(name), int | float)
    ]
    return ", ".join(dict.fromkeys(filter(None, [*words, *numbers])))


def _here(owner: Mapping[str, Any], column: str) -> tuple[Cell, Cell]:
    """Return what was measured in this column, and its unit."""
    for place in _PLACES:
        inside = owner.get(place)
        if isinstance(inside, dict) and isinstance(inside.get(column), int | float):
            return Number(_number(inside[column])), str(inside.get("unit") or "")
        if column == place and isinstance(inside, dict):
            return Number(_number(inside.get("p50_ms"))), "ms"
    change = owner.get("change")
    if isinstance(change, dict):
        return Number(_number(change.get("before"))), str(owner.get("unit") or "")
    unit = "x" if column == "speed_up" else str(owner.get("unit") or "")
    own = {"memory": "memory_gb", "gpu_use": "gpu_use_percent"}.get(column, column)
    value = owner.get(own) if own in owner else owner.get("value")
    return Number(_number(value)), {"memory_gb": "GB", "gpu_use_percent": "%"}.get(own, unit)


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    # whole numbers of JSON have no end, and our figures do
    return digits(value) if isinstance(value, float) or abs(value) < _MOST else str(value)

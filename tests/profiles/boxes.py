"""The table of boxes with GPUs, of public outputs' facts (boxes.yml), as the lab composes them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from nodectl.lab.composed import Box, Card
from nodectl.profiles.gpus import model_of

_TABLE = Path(__file__).with_name("boxes.yml")


@cache
def boxes() -> tuple[Box, ...]:
    """Return the boxes of the table."""
    return tuple(map(box_of, _document()["boxes"]))


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return document


def box_of(row: dict[str, Any]) -> Box:
    """Return the box of a row of the table."""
    known = {name: Card(name, *rest) for name, rest in _document()["cards"].items()}
    cards = tuple(known[name] for name, number in row["gpus"].items() for _ in range(number))
    size, model = len(cards), model_of(cards[0].name)
    # of modules whose source shows no matrix: all their links; an SXM2 carrier board joins some
    joined = model.nvlink if model and model.is_module and "SXM2" not in cards[0].name else None
    whole = joined if "links" not in row and size > len(row["gpus"]) == 1 else None
    words = str(row.get("links", f"NV{whole[1]}" if whole else "SYS")).split()
    if len(words) == 1:
        words *= size * (size - 1) // 2
    matrix = [["X"] * size for _ in cards]
    pairs = [(a, b) for a in range(size) for b in range(a + 1, size)]
    # the upper triangle, row by row
    for (a, b), word in zip(pairs, words, strict=True):
        matrix[a][b] = matrix[b][a] = word
    return Box(cards, tuple(map(tuple, matrix)), range(size), row.get("switched", whole is not None))

"""Knows the matrices of `nvidia-smi topo`: names above and beside the cells, with tabs or spaces between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nodectl.parsers.nvidia.words import no_output, refused
from nodectl.parsers.text import Line, unreadable

_LABELS = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
_NAME = re.compile(r"GPU[0-9]{1,4}|NIC[0-9]{1,4}|[a-z][\w.-]*[0-9]")
_ROW_NAME = re.compile(r"(?:GPU|NIC)[0-9]{1,4}")
_GPU = re.compile(r"GPU[0-9]{1,4}")


@dataclass(slots=True)
class Matrix:
    """The cells by row and column, without the diagonal; `labels` are the columns behind them, if any."""

    names: list[str]
    labels: list[str]
    cells: dict[str, dict[str, str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    behind: dict[str, list[str]] = field(default_factory=dict)
    rest: list[Line] = field(default_factory=list)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of GPUs, in the columns' order."""
        return tuple(name for name in self.names if _GPU.fullmatch(name))


def read_matrix(tool: str, lines: Sequence[Line], words: str) -> Matrix:
    """The matrix whose cells are `words` (a pattern); ParseError for a cut or garbled row."""
    word = re.compile(rf"(?:{words})")
    for at, line in enumerate(lines):
        if (start := line.text.find("GPU")) >= 0 and (matrix := _header(line.text[start:])):
            prefix = line.text[:start].strip()
            for row in lines[at + 1 :]:
                _read_row(tool, matrix, row, prefix, word)
            return matrix
    raise no_output(tool, lines, "matrix with the columns GPU0, GPU1, …")


def _header(text: str) -> Matrix | None:
    label = _LABELS.search(text)
    names = re.findall(r"(?:GPU|NIC)[0-9]+|\S+", text[: label.start()] if label else text)
    if not names or not _GPU.fullmatch(names[0]) or not all(_NAME.fullmatch(name) for name in names):
        return None
    return Matrix(names, _LABELS.findall(text))


def _read_row(tool: str, matrix: Matrix, line: Line, prefix: str, word: re.Pattern[str]) -> None:
    text = line.text.strip(" ")
    if prefix:
        text = text.removeprefix(prefix).lstrip(" \t")
    name = text.split(None, 1)[0] if text.strip() else ""
    if _ROW_NAME.fullmatch(name) and name not in matrix.names:
        raise unreadable(tool, line, f"no column is named {name}")
    if name not in matrix.names or name in matrix.cells:
        matrix.rest.append(line)
        return
    words = _split(text.strip(" \r")[len(name) :], word)
    size = len(matrix.names)
    cells, behind = words[:size], words[size:]
    own = matrix.names.index(name)
    if len(cells) < size or cells[own] != "X":
        raise unreadable(
            tool, line, f"{len(cells)} cells under {size} columns, or the diagonal's X is not in its place"
        )
    if "CPU Affinity" in matrix.labels and _GPU.fullmatch(name) and not behind:
        raise unreadable(tool, line, "the row is cut before its CPU affinity")
    row = matrix.cells[name] = {}
    for column, cell in zip(matrix.names, cells, strict=True):
        if column == name:
            continue
        if refused(cell):
            matrix.refused[f"{name}-{column}"] = cell
        elif word.fullmatch(cell) is None or cell == "X":
            raise unreadable(tool, line, f"{cell!r} under {column} is none of the legend's words")
        else:
            row[column] = cell
    matrix.behind[name] = behind


def _split(text: str, word: re.Pattern[str]) -> list[str]:
    """Cells by tabs, of which empty ones count, else by space; cells that grew together are taken apart."""
    if "\t" in text:
        return [cell.strip() for cell in text.split("\t")[1:]]
    cells: list[str] = []
    for token in text.split():
        whole = word.fullmatch(token) is not None or not token[0].isalpha()
        parts = [token] if whole or refused(token) else word.findall(token)
        cells += parts if "".join(parts) == token else [token]
    return cells

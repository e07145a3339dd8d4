"""Reads the matrices of `nvidia-smi topo`: -m (how GPUs and NICs reach each other), -p2p r, w, n, a, p (memory).

Names stand above and beside the cells, with tabs or spaces between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.facts.parsers.nvidia.words import no_output, refused
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvidia-smi-topo"
P2P_TOOL = "nvidia-smi-p2p"
_LINKS = re.compile(r"NV[0-9]{1,3}|NODE|PIX|PXB|PHB|PSB|SYS|SOC|X")
_P2P_WORDS = re.compile(r"OK|CNS|GNS|TNS|NS|DR|U|X")
_LEGEND = re.compile(r"(NIC[0-9]{1,4}): *(\S+)\s*")
_LABELS = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
_NAME = re.compile(r"GPU[0-9]{1,4}|NIC[0-9]{1,4}|[a-z][\w.-]*[0-9]")
_ROW_NAME = re.compile(r"(?:GPU|NIC)[0-9]{1,4}")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_LIST = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_NUMBER = re.compile(r"[0-9]{1,5}")
_VALUES = {"CPU Affinity": _LIST, "NUMA Affinity": _LIST, "GPU NUMA ID": _NUMBER}


@dataclass(frozen=True, slots=True)
class NvidiaSmiTopo:
    """The matrix without its diagonal; a link or an affinity that is refused stands in `unavailable`."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    nic_devices: Mapping[str, str]
    links: Mapping[str, Mapping[str, str]]
    cpu_affinity: Mapping[str, str | None]
    numa_affinity: Mapping[str, str | None]
    gpu_numa_id: Mapping[str, str | None]
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiP2p:
    """The matrix without its diagonal: OK, or why not, in nvidia-smi's words."""

    gpus: tuple[str, ...]
    status: Mapping[str, Mapping[str, str]]
    unavailable: Mapping[str, str] = field(default_factory=dict)


def parse_nvidia_smi_topo(text: str) -> NvidiaSmiTopo:
    """Read the output; raise ParseError for a cut row, a word that is no link, or if there is no matrix."""
    matrix = _read_matrix(TOOL, text, _LINKS)
    nics = tuple(name for name in matrix.names if name not in matrix.gpus)
    unavailable = {f"links.{pair}": word for pair, word in matrix.refused.items()}
    cpus, nodes, gpu_nodes = (_behind(matrix, label, unavailable) for label in _VALUES)
    # drivers before NIC0, NIC1, … name the columns after the devices
    devices = {name: name for name in nics if not name.startswith("NIC")}
    for line in matrix.rest:
        if (match := _LEGEND.search(line.text)) and match[1] in nics:
            devices[match[1]] = match[2]
    return NvidiaSmiTopo(matrix.gpus, nics, devices, matrix.cells, cpus, nodes, gpu_nodes, unavailable)


def parse_nvidia_smi_p2p(text: str) -> NvidiaSmiP2p:
    """Read the output; raise ParseError for a cut row, a word that is no status, or if there is no matrix."""
    matrix = _read_matrix(P2P_TOOL, text, _P2P_WORDS)
    return NvidiaSmiP2p(matrix.gpus, matrix.cells, {f"status.{pair}": word for pair, word in matrix.refused.items()})


def _behind(matrix: _Matrix, label: str, unavailable: dict[str, str]) -> dict[str, str | None]:
    if label not in matrix.labels:
        return {}
    at = matrix.labels.index(label)
    affinity: dict[str, str | None] = {}
    for name in matrix.gpus:
        cells = matrix.behind.get(name, [])
        # nvidia-smi puts an empty cell before the last column
        last = at == len(matrix.labels) - 1 and len(cells) > len(matrix.labels)
        value = cells[-1] if last else cells[at] if at < len(cells) else ""
        if refused(value):
            unavailable[f"{label.lower().replace(' ', '_')}.{name}"] = value
        affinity[name] = None if refused(value) else value or None
    return affinity


@dataclass(slots=True)
class _Matrix:
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


def _read_matrix(tool: str, text: str, word: re.Pattern[str]) -> _Matrix:
    lines = list(untagged(lines_of(text, tool)))
    for at, line in enumerate(lines):
        if (start := line.text.find("GPU")) >= 0 and (matrix := _header(line.text[start:])):
            prefix = line.text[:start].strip()
            for row in lines[at + 1 :]:
                _read_row(tool, matrix, row, prefix, word)
            if missing := [name for name in matrix.gpus if name not in matrix.cells]:
                failure = next((row for row in lines if row.text.startswith("Failed to ")), None)
                why = f"no row follows for the column {missing[0]}: the matrix is cut"
                raise unreadable(tool, failure or line, "this is why it failed, not its output" if failure else why)
            return matrix
    raise no_output(tool, lines, "matrix with the columns GPU0, GPU1, …")


def _header(text: str) -> _Matrix | None:
    label = _LABELS.search(text)
    names = re.findall(r"(?:GPU|NIC)[0-9]+|\S+", text[: label.start()] if label else text)
    if not names or not _GPU.fullmatch(names[0]) or not all(_NAME.fullmatch(name) for name in names):
        return None
    return _Matrix(names, _LABELS.findall(text))


def _read_row(tool: str, matrix: _Matrix, line: Line, prefix: str, word: re.Pattern[str]) -> None:
    text = line.text.strip(" ")
    if prefix:
        text = text.removeprefix(prefix).lstrip(" \t")
    name = text.split(None, 1)[0] if text.strip() else ""
    if _ROW_NAME.fullmatch(name) and name not in matrix.names:
        raise unreadable(tool, line, f"no column is named {name}")
    if name not in matrix.names or name in matrix.cells:
        matrix.rest.append(line)
        return
    tokens = _split(text.strip(" \r")[len(name) :], word)
    size = len(matrix.names)
    cells, behind = tokens[:size], tokens[size:]
    diagonal = matrix.names.index(name)
    if len(cells) < size or cells[diagonal] != "X":
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
    if "\t" not in text and behind and all(map(refused, behind)):
        # blank cells, as of a VM without affinities, are lost with the tabs
        behind = [""] * (len(matrix.labels) - len(behind)) + behind
    matrix.behind[name] = behind
    if _GPU.fullmatch(name):
        _require_affinities(tool, matrix, line, behind)


def _require_affinities(tool: str, matrix: _Matrix, line: Line, cells: list[str]) -> None:
    """Raise ParseError where two cells grew together: `0-23` and `0` would be `0-230`, or read as the next column."""
    if len(cells) < len(matrix.labels):
        why = (
            f"{len(cells)} cells behind the links, under {len(matrix.labels)} columns: two grew together, or it is cut"
        )
        raise unreadable(tool, line, why)
    written = [cell for cell in cells if cell]
    for label, cell in zip(matrix.labels, written if len(written) == len(matrix.labels) else cells, strict=False):
        if cell and not refused(cell) and not _VALUES[label].fullmatch(cell):
            raise unreadable(tool, line, f"{cell[:40]!r} is no value of {label}")


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

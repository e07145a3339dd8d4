"""The published table that the sweep repeats."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from nodectl.common.resources import data_dir


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One column of the article's table."""

    rate_gbit_s: float
    one_node_samples_s: float
    many_nodes_samples_s: float
    retrieval_ms: float


@dataclass(frozen=True, slots=True)
class Published:
    """The article's figures, lowest rate first."""

    source: str
    hardware: str
    network: str
    rows: tuple[PublishedRow, ...]

    @property
    def ratio(self) -> float:
        """Throughput of many nodes at the highest rate to that at the lowest."""
        return self.rows[-1].many_nodes_samples_s / self.rows[0].many_nodes_samples_s


@lru_cache(maxsize=1)
def published() -> Published:
    """The article's table."""
    document = json.loads((data_dir() / "articles" / "network-sweep.json").read_text(encoding="utf-8"))
    rows = sorted((PublishedRow(**row) for row in document.pop("rows")), key=lambda row: row.rate_gbit_s)
    return Published(rows=tuple(rows), **document)

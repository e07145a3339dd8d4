"""When two measurements are of the same thing: probe, hosts, unit, and those conditions that were chosen, not found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.model.measurement import Measurement

# what the operator or the probe chose; what was found (congestion, MTU, versions) may change and is then a change
_CHOSEN = (
    *("collective", "operation", "backend", "ranks", "scope", "streams", "interfaces"),
    *("kernel", "numa", "method", "threads", "dtype", "shape", "gpu", "device", "memory", "pattern", "path"),
    *(
        "direct",
        "engine",
        "hosts_at_once",
        "block_bytes",
        "jobs",
        "queue_depth",
        "bidirectional",
        "peer_access",
        "connection",
        "batch_size",
        "transfer",
        "target",
        "rail",
    ),
    *("gradient_bytes", "precision", "rows", "dim", "k", "shards", "rate"),
)
_SIZE = "size_bytes"


@dataclass(frozen=True, slots=True)
class Identity:
    """What was measured, whenever that was."""

    probe: str
    hosts: tuple[str, ...]
    direction: str
    unit: str
    subject: str = ""
    size_bytes: int | None = None

    @property
    def key(self) -> str:
        """The same text for the same thing."""
        return json.dumps([self.probe, self.hosts, self.direction, self.unit, self.subject, self.size_bytes])

    @classmethod
    def of_key(cls, key: str) -> Identity:
        """The identity of which `key` is the text."""
        probe, hosts, direction, unit, subject, size_bytes = json.loads(key)
        return cls(probe, tuple(hosts), direction, unit, subject, size_bytes)

    @property
    def label(self) -> str:
        """For people: `nccl node01,node02 all_reduce 1048576 B`."""
        where = self.direction or ",".join(self.hosts)
        size = None if self.size_bytes is None else f"{self.size_bytes} B"
        return " ".join(filter(None, [self.probe, where, self.subject, size]))


def identity_of(measurement: Measurement) -> Identity:
    """The identity of a measurement."""
    size = measurement.conditions.get(_SIZE)
    return Identity(
        measurement.probe,
        measurement.hosts,
        measurement.direction,
        measurement.unit,
        subject_of(measurement.conditions),
        size if isinstance(size, int) else None,
    )


def chosen(conditions: Mapping[str, object]) -> dict[str, object]:
    """The conditions that make it this measurement and no other, its size among them."""
    return {name: conditions[name] for name in (_SIZE, *_CHOSEN) if conditions.get(name) not in (None, "")}


def subject_of(conditions: Mapping[str, object]) -> str:
    """The chosen conditions in a fixed order; `all_reduce, backend nccl, ranks 16`."""
    told = []
    for name in _CHOSEN:
        value = conditions.get(name)
        if value is None or value == "":
            continue
        bare = name in ("collective", "operation", "kernel")
        text = ",".join(dict.fromkeys(map(str, value))) if isinstance(value, list | tuple) else str(value)
        told.append(text if bare else f"{name} {text}")
    return ", ".join(told)

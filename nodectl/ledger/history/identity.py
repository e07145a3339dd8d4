"""Identity of a measurement: probe, hosts, unit, and those conditions that were chosen, not found."""

from __future__ import annotations

import json
from dataclasses import dataclass

from nodectl.common.units import format_size
from nodectl.model.measurement import Measurement
from nodectl.probes.registry import kind_of


@dataclass(frozen=True, slots=True)
class Identity:
    """Hold what was measured, whenever that was."""

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
        """Read an identity from its key; ValueError where it is none."""
        try:
            probe, hosts, direction, unit, subject, size_bytes = json.loads(key)
            return cls(probe, tuple(hosts), direction, unit, subject, size_bytes)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{key!r} is no identity") from error

    @property
    def kind(self) -> str:
        """Return what a finding about it blames: the host, the path between two, or of a group none of them."""
        return {1: "host", 2: "path"}.get(len(self.hosts), "")

    @property
    def label(self) -> str:
        """For people: `nccl node01,node02 all_reduce 1 MiB`."""
        where = self.direction or ",".join(self.hosts)
        size = None if self.size_bytes is None else format_size(self.size_bytes)
        return " ".join(filter(None, [self.probe, where, self.subject, size]))


def identity_of(measurement: Measurement) -> Identity:
    """Return the identity of a measurement: the same for two measurements of the same thing."""
    size = measurement.conditions.get("size_bytes")
    return Identity(
        measurement.probe,
        measurement.hosts,
        measurement.direction,
        measurement.unit,
        kind_of(measurement.probe).subject(measurement.conditions),
        size if isinstance(size, int) else None,
    )

"""A measured value with its unit and the conditions under which it was taken."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Measurement:
    """`value` is the median over repetitions; `spread` is (max - min) / median; `hosts` in the order of `direction`."""

    probe: str
    hosts: tuple[str, ...]
    value: float
    unit: str
    direction: str = ""
    expected: float | None = None
    spread: float | None = None
    conditions: Mapping[str, object] = field(default_factory=dict)

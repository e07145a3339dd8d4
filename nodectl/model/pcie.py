"""A host's PCI Express: bridges with access control, trained links, and what hangs below what."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PcieBridge:
    """A bridge with access control; `redirects`: it sends traffic between devices through the root complex."""

    address: str
    name: str
    redirects: bool
    flags: str | None = None


@dataclass(frozen=True, slots=True)
class PcieLink:
    """How the link of one device or port was trained, and the best that it could."""

    address: str
    kind: str
    name: str
    speed_gt_s: float | None
    speed_max_gt_s: float | None
    width: int | None
    width_max: int | None


@dataclass(frozen=True, slots=True)
class Pcie:
    """Addresses are `0000:0f:00.0`. `parents` names the bridge above each device; empty where it is not known.

    `virtual`: a virtual machine, whose host relies on access control.
    """

    bridges: tuple[PcieBridge, ...]
    links: tuple[PcieLink, ...]
    parents: Mapping[str, str] = field(default_factory=dict)
    virtual: bool | None = None

    def above(self, address: str) -> tuple[str, ...]:
        """The bridges between a device and the root, the nearest first."""
        found: list[str] = []
        at = self.parents.get(address.lower())
        while at and at not in found:
            found.append(at)
            at = self.parents.get(at)
        return tuple(found)

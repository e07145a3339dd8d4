"""Families of distributions, and what each calls a thing; the names stand in families.yml and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal

from pydantic import Field

from nodectl.profiles.load import shipped
from nodectl.profiles.schema import Flavour, Published, Stack, Strict, SystemLibrary

DEBIAN = "debian"


class Chrony(Strict):
    """The unit of chrony, the file of nodectl's servers, and the file that must name its folder; empty: none must."""

    service: str
    sources: str
    conf: str


class Remedies(Strict):
    """Commands that an operator is told."""

    hold: str
    unhold: str
    boot: str


class Precompiled(Strict):
    """The builder of the driver's kernel modules for some systems; names have {branch}, {open} and {kernel} in them.

    `systems` are distributions, or single releases of them as stacks name them.
    """

    systems: tuple[str, ...]
    # whose driver they belong to
    origin: Literal["nvidia", "distribution"]
    # the driver's package, where it is another than for modules that DKMS builds, and what comes with it
    driver: str = ""
    beside: tuple[str, ...] = ()
    stream: str = ""
    module: str
    # patterns of what there may be in its place: for the same kernel, and of the same driver
    others: tuple[str, ...]
    flavours: tuple[Flavour, ...]
    # what Secure Boot must know; empty if it knows the key
    enrolled: str = ""


class Family(Strict):
    """One family's names."""

    family: str
    systems: tuple[str, ...]
    alike: str = ""
    repository: str
    headers: str
    driver_needs: dict[str, str]
    precompiled: tuple[Precompiled, ...] = ()
    rdma: tuple[str, ...]
    compiler: tuple[str, ...]
    deepspeed: tuple[str, ...]
    chrony: Chrony
    packages: dict[str, str] = Field(default_factory=dict)
    other_names: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    dotted: tuple[str, ...] = ()
    remedies: Remedies

    def named(self, package: str) -> str:
        """Its name of a package that stacks name as Debian does."""
        return self.packages.get(package, package)

    def _versions(self, library: SystemLibrary | None) -> SystemLibrary | None:
        if library is None:
            return None
        versions = {self.named(name): version for name, version in library.packages.items()}
        dotted = {name: version.replace("+cuda", ".cuda") for name, version in versions.items() if name in self.dotted}
        return SystemLibrary.model_construct(packages={**versions, **dotted})

    def stack(self, stack: Stack) -> Stack:
        """Return the stack with this family's names and versions of the system's packages."""
        if not self.packages:
            return stack
        system = stack.system.model_copy(
            update={"cudnn": self._versions(stack.system.cudnn), "nccl": self._versions(stack.system.nccl)}
        )
        return stack.model_copy(update={"system": system, "dcgm": tuple(map(self.named, stack.dcgm))})

    def repository_of(self, system: str, version: str) -> str:
        """NVIDIA's name of a distribution in this version."""
        return self.repository.format(id=system, version=version.replace(".", ""), major=version.partition(".")[0])

    def precompiled_of(self, system: str, version: str) -> Precompiled | None:
        """Precompiled modules for a distribution in this version; None if nobody builds them."""
        names = {system, self.key(f"{system}-{version.partition('.')[0]}")}
        return next((row for row in self.precompiled if names.intersection(row.systems)), None)

    def key(self, key: str) -> str:
        """Return a system such as rocky-9 as stacks name it."""
        system, dash, version = key.partition("-")
        return f"{self.alike or system}{dash}{version}"


class _Families(Published):
    families: tuple[Family, ...]


@cache
def families() -> tuple[Family, ...]:
    """All that are known, read once."""
    return shipped(_Families, "families.yml").families


def family_of(system: str | None) -> Family:
    """Return the family of an os-release ID; Debian's if it is not known, which a stack's `os` then refuses."""
    by_system: Mapping[str, Family] = {name: family for family in families() for name in family.systems}
    return by_system.get(system or "", by_system[DEBIAN])

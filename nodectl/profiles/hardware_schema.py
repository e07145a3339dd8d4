"""The shape of a hardware profile: what a node is made of, and what it must reach under load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from nodectl.profiles.fields import Strict, Version

GpuLink = Literal["nvswitch", "nvlink-bridge", "pcie"]


class Gpu(Strict):
    """One GPU of the node; all are alike."""

    model: str
    compute_capability: Annotated[Version, Field(pattern=r"^[0-9]+\.[0-9]$")]
    memory_gb: int = Field(gt=0)


class Nic(Strict):
    """Network interfaces of one kind."""

    count: int = Field(gt=0)
    rate_gbit: float = Field(gt=0)
    kind: Literal["infiniband", "roce", "ethernet"]
    use: str = ""


class Cpu(Strict):
    """The processors: sockets, cores and threads of the whole node."""

    model: str
    sockets: int = Field(gt=0)
    cores: int = Field(gt=0)
    threads: int = Field(gt=0)


class Floor(Strict):
    """The least that a probe must measure, of a time the most; for the link class that is found between the GPUs."""

    probe: str
    conditions: dict[str, Any] = Field(default_factory=dict)
    value: float = Field(gt=0, allow_inf_nan=False)
    unit: str
    tolerance_percent: float = Field(default=0, ge=0, lt=100)
    link_class: GpuLink | None = None
    source: str


class Hardware(Strict):
    """What a node is made of; `gpus` None means unknown: measured, without a reference to hold it against."""

    description: str
    gpus: Annotated[int, Field(ge=0)] | None
    gpu: Gpu | None = None
    # between all GPUs; a pair may have a better one
    link: GpuLink | None = None
    nvswitch: bool = False
    nics: tuple[Nic, ...] = ()
    cpu: Cpu | None = None
    memory_gb: int | None = None
    floors: tuple[Floor, ...] = ()
    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _gpus_agree(self) -> Hardware:
        if not self.gpus and (self.gpu or self.nvswitch or self.link):
            raise ValueError("gpu, link and nvswitch need 'gpus' above 0")
        if self.link == "nvswitch" and not self.nvswitch:
            raise ValueError("link nvswitch needs 'nvswitch: true'")
        unknown = [name for name in self.sources if name.partition(".")[0] not in type(self).model_fields]
        if unknown:
            raise ValueError(f"sources: {', '.join(unknown)}: no such field of a hardware")
        return self

    def floors_for(self, link: GpuLink | None) -> tuple[Floor, ...]:
        """The floors that hold where `link` is the class found between the GPUs."""
        return tuple(floor for floor in self.floors if floor.link_class in (None, link))

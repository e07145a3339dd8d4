"""The shape of a stack profile: what is installed, and for which systems it exists."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from nodectl.profiles.fields import AptName, AptVersion, Strict, Version, requirement_name

Os = Annotated[str, Field(pattern=r"^[a-z]+-[0-9]+(\.[0-9]+)?$")]
Architecture = Literal["x86_64", "aarch64"]
Flavour = Literal["proprietary", "open"]


class PythonRange(Strict):
    """Interpreters that the stack's wheels exist for, both ends included, as major.minor."""

    min: Version
    max: Version


class Driver(Strict):
    """The driver that the stack installs where it may, and the lowest one that it works with."""

    branch: Annotated[str, Field(pattern=r"^[1-9][0-9]{2}$")]
    min: Version
    flavour: Flavour = "proprietary"


class Toolkit(Strict):
    """The system's CUDA toolkit: for C++ builds; torch's wheel brings its own runtime."""

    # never the meta package `cuda`, which pulls a driver
    package: Annotated[str, Field(pattern=r"^cuda-toolkit-[0-9]+-[0-9]+$")]
    version: AptVersion | None = None


class SystemLibrary(Strict):
    """A library of the system with its exact packages: for C++ builds; torch loads the one of its wheel."""

    packages: Annotated[dict[AptName, AptVersion], Field(min_length=1)]


class SystemLibraries(Strict):
    """What C++ builds and nccl-tests find; none of it is what torch loads."""

    toolkit: Toolkit | None = None
    cudnn: SystemLibrary | None = None
    nccl: SystemLibrary | None = None


class Stack(Strict):
    """What is installed; `cuda`, `cudnn` and `nccl` are those that torch's wheel loads, None where it has none."""

    description: str
    os: tuple[Os, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    python: PythonRange
    torch: Version
    index: Annotated[str, Field(pattern=r"^([a-z0-9]+|(https?|file)://\S+)$")]
    cuda: Version | None = None
    cudnn: Version | None = None
    nccl: Version | None = None
    driver: Driver | None = None
    system: SystemLibraries = SystemLibraries()
    dcgm: tuple[AptName, ...] = ()
    deepspeed: Version | None = None
    nccl_tests: Annotated[str, Field(pattern=r"^v[0-9][0-9.]*$")] | None = None
    packages: dict[Annotated[str, AfterValidator(requirement_name)], Version] = Field(default_factory=dict)
    # fields that no source confirms: shown as a warning wherever the stack is used
    unverified: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _notes_name_fields(self) -> Stack:
        for group in ("unverified", "sources"):
            unknown = [name for name in getattr(self, group) if name.partition(".")[0] not in type(self).model_fields]
            if unknown:
                raise ValueError(f"{group}: {', '.join(unknown)}: no such field of a stack")
        if self.cuda is None and self.driver is not None:
            raise ValueError("driver: a stack without 'cuda' needs none")
        return self

    @property
    def requirements(self) -> tuple[str, ...]:
        """What is installed into the environment, as pinned requirements with torch first."""
        extra = {**self.packages, **({"deepspeed": self.deepspeed} if self.deepspeed else {})}
        return (f"torch=={self.torch}", *(f"{name}=={version}" for name, version in sorted(extra.items())))

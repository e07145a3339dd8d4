"""The shape of a profile: every field that exists, so that a typo is refused with its path."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from nodectl.profiles.nccl import check_name, check_value, is_debug_variable, version_key

_SYSCTL_KEY = re.compile(r"[a-z0-9_]+([./][A-Za-z0-9_:-]+)+\Z")
_LIMIT_VALUE = re.compile(r"(unlimited|[1-9][0-9]*)\Z")
_REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


def _sysctl_key(key: str) -> str:
    if not _SYSCTL_KEY.match(key) or ".." in key:
        raise ValueError(f"{key!r} is no sysctl key such as net.ipv4.tcp_rmem")
    return key


def _sysctl_value(value: str) -> str:
    if not value.strip() or not value.replace("\t", " ").isprintable():
        raise ValueError(f"{value!r}: a sysctl value is one line and not empty")
    return " ".join(value.split())


def _limit_value(value: str) -> str:
    if not _LIMIT_VALUE.match(value):
        raise ValueError(f"{value!r}: a limit is a positive whole number or 'unlimited'")
    return value


def _version(value: str) -> str:
    version_key(value.split("+")[0])
    return value


def _requirement_name(name: str) -> str:
    if not _REQUIREMENT_NAME.match(name):
        raise ValueError(f"{name!r} is no package name")
    return name


Version = Annotated[str, AfterValidator(_version)]
SysctlKey = Annotated[str, AfterValidator(_sysctl_key)]
NcclName = Annotated[str, AfterValidator(check_name)]


class Strict(BaseModel):
    """Frozen; an unknown field is an error; a number may stand where text is meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class Setting(Strict):
    """A value with its reason; `origin` is where it came from, filled in by `resolve`."""

    why: str
    source: str = ""
    origin: str = ""


class SysctlSetting(Setting):
    """One kernel setting; with `never_lower` each number of it is only ever raised."""

    value: Annotated[str, AfterValidator(_sysctl_value)]
    never_lower: bool = True


class LimitSetting(Setting):
    """One resource limit, soft and hard, in the units of limits.conf."""

    value: Annotated[str, AfterValidator(_limit_value)]


class NcclForm(Strict):
    """A value for NCCL versions below `below`; without it, for all others."""

    value: Annotated[str, AfterValidator(check_value)]
    below: Version | None = None


class NcclSetting(Setting):
    """One NCCL variable: one `value`, or `forms` for different versions of NCCL."""

    value: Annotated[str, AfterValidator(check_value)] | None = None
    forms: tuple[NcclForm, ...] = ()

    @model_validator(mode="after")
    def _one_of_both(self) -> NcclSetting:
        if (self.value is None) == (not self.forms):
            raise ValueError("give either 'value' or 'forms'")
        if self.forms and self.forms[-1].below is not None:
            raise ValueError("the last of 'forms' is for all later versions and has no 'below'")
        if any(form.below is None for form in self.forms[:-1]):
            raise ValueError("each of 'forms' but the last needs 'below'")
        return self

    def render(self, nccl_version: str | None) -> str:
        """The value for this NCCL; None means a stack without NCCL, which gets the newest form."""
        for form in self.forms:
            if form.below is None or (nccl_version and version_key(nccl_version) < version_key(form.below)):
                return form.value
        return self.value or ""


class PythonRange(Strict):
    """Interpreters that the stack's wheels exist for, both ends included, as major.minor."""

    min: Version
    max: Version


class Hardware(Strict):
    """What a node is made of."""

    description: str
    gpus: int = Field(ge=0)


class Stack(Strict):
    """What is installed; `cuda` and `nccl` are None where the wheels bring none."""

    description: str
    python: PythonRange
    torch: Version
    index: Annotated[str, Field(pattern=r"^(https?|file)://\S+$")]
    cuda: Version | None = None
    nccl: Version | None = None
    packages: dict[Annotated[str, AfterValidator(_requirement_name)], Version] = {}

    @property
    def requirements(self) -> tuple[str, ...]:
        """Pinned requirements, torch first."""
        return (f"torch=={self.torch}", *(f"{name}=={version}" for name, version in sorted(self.packages.items())))


class Tuning(Strict):
    """What is set on top of a stock system."""

    description: str = ""
    allow_debug_variables: bool = False
    sysctl: dict[SysctlKey, SysctlSetting] = {}
    nccl: dict[NcclName, NcclSetting] = {}
    limits: dict[Literal["memlock", "nofile"], LimitSetting] = {}

    @property
    def debug_variables(self) -> tuple[str, ...]:
        """Those of its NCCL variables that NVIDIA calls debugging ones."""
        return tuple(name for name in sorted(self.nccl) if is_debug_variable(name))

    @model_validator(mode="after")
    def _debug_variables_are_asked_for(self) -> Tuning:
        if self.debug_variables and not self.allow_debug_variables:
            raise ValueError(
                f"{', '.join(self.debug_variables)}: of NCCL's debugging class, which NVIDIA says not to persist; "
                "a profile that means it says 'allow_debug_variables: true'"
            )
        return self


KINDS = ("hardware", "stack", "tuning")
Document = dict[str, Any]

"""The shape of a tuning profile: kernel settings, NCCL variables, limits, NICs and GPUs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from nodectl.profiles.fields import Setting, Strict, Version, limit_value, sysctl_key, sysctl_value
from nodectl.profiles.nccl import check_name, check_value, is_debug_variable, is_host_variable, version_key

SysctlKey = Annotated[str, AfterValidator(sysctl_key)]
NcclName = Annotated[str, AfterValidator(check_name)]


class SysctlSetting(Setting):
    """One kernel setting; with `never_lower` each number of it is only ever raised."""

    value: Annotated[str, AfterValidator(sysctl_value)]
    never_lower: bool = True


class LimitSetting(Setting):
    """One resource limit, soft and hard, in the units of limits.conf."""

    value: Annotated[str, AfterValidator(limit_value)]


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


class NicSetting(Setting):
    """One setting of the training interfaces."""

    value: Any


class MtuSetting(NicSetting):
    """Bytes of a frame's payload."""

    value: Annotated[int, Field(ge=1280, le=9978)]


class RingsSetting(NicSetting):
    """Receive and transmit rings at the device's own maximum."""

    value: Literal["max"]


class IrqSetting(NicSetting):
    """Interrupts on the CPUs of the interface's NUMA node."""

    value: Literal["numa"]


class NicSettings(Strict):
    """What is set on the training interfaces; None leaves it alone."""

    mtu: MtuSetting | None = None
    rings: RingsSetting | None = None
    irq: IrqSetting | None = None


class PersistenceSetting(Setting):
    """Whether the driver stays loaded without a client."""

    value: bool


class ClocksSetting(Setting):
    """Application clocks as `memory,graphics` in MHz, or `max`."""

    value: Annotated[str, Field(pattern=r"^(max|[1-9][0-9]*,[1-9][0-9]*)$")]


class PowerSetting(Setting):
    """Power limit of each GPU in watts."""

    value: Annotated[int, Field(gt=0)]


class AcsSetting(Setting):
    """PCIe access control services of the bridges."""

    value: Literal["off"]


class GpuSettings(Strict):
    """What is set on the GPUs and their bridges; None leaves it alone."""

    persistence: PersistenceSetting | None = None
    clocks: ClocksSetting | None = None
    power_limit_w: PowerSetting | None = None
    acs: AcsSetting | None = None


class Tuning(Strict):
    """What is set on top of a stock system."""

    description: str = ""
    allow_debug_variables: bool = False
    sysctl: dict[SysctlKey, SysctlSetting] = Field(default_factory=dict)
    nccl: dict[NcclName, NcclSetting] = Field(default_factory=dict)
    limits: dict[Literal["memlock", "nofile"], LimitSetting] = Field(default_factory=dict)
    nic: NicSettings = NicSettings()
    gpu: GpuSettings = GpuSettings()

    @property
    def debug_variables(self) -> tuple[str, ...]:
        """Those of its NCCL variables that NVIDIA calls debugging ones."""
        return tuple(name for name in sorted(self.nccl) if is_debug_variable(name))

    @property
    def host_variables(self) -> tuple[str, ...]:
        """Those of its own NCCL variables whose names and numbers differ from node to node."""
        return tuple(
            name
            for name, setting in sorted(self.nccl.items())
            if is_host_variable(name) and setting.origin.startswith("tuning ")
        )

    @model_validator(mode="after")
    def _no_names_of_one_host(self) -> Tuning:
        if self.host_variables:
            raise ValueError(
                f"{', '.join(self.host_variables)}: names and numbers of interfaces differ from node to node, so no "
                "profile holds them; set them in the host variable nodectl_nccl_env"
            )
        return self

    @model_validator(mode="after")
    def _debug_variables_are_asked_for(self) -> Tuning:
        if self.debug_variables and not self.allow_debug_variables:
            raise ValueError(
                f"{', '.join(self.debug_variables)}: of NCCL's debugging class, which NVIDIA says not to persist; "
                "a profile that means it says 'allow_debug_variables: true'"
            )
        return self

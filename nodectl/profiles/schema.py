"""The shape of a profile: every field that exists, so that a typo is refused with its path."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from nodectl.profiles.nccl import (
    check_name,
    check_value,
    is_debug_variable,
    is_host_variable,
    version_key,
    why_no_value,
)

T = TypeVar("T")


def _matching(pattern: str, complaint: str) -> AfterValidator:
    def checked(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r}{complaint}")
        return text

    return AfterValidator(checked)


def _version(text: str) -> str:
    version_key(text.partition("+")[0])
    return text


def _sysctl_value(value: str) -> str:
    if not value.strip() or not value.replace("\t", " ").isprintable():
        raise ValueError(f"{value!r}: a sysctl value is one line and not empty")
    return " ".join(value.split())


Version = Annotated[str, AfterValidator(_version)]
SysctlKey = Annotated[
    str, _matching(r"[a-z0-9_]+([./][A-Za-z0-9_:-]+)+", " is no sysctl key such as net.ipv4.tcp_rmem")
]
SysctlValue = Annotated[str, AfterValidator(_sysctl_value)]
Limit = Annotated[str, _matching(r"unlimited|[1-9][0-9]*", ": a limit is a positive whole number or 'unlimited'")]
# sshd, systemd and a shell need some of each; below it a login fails, and with it the way back
_LEAST = {"nofile": 1024, "memlock": 64}
# the kernel takes no greater fs.nr_open, and no number of KiB beyond the address space
_MOST = {"nofile": 1073741816, "memlock": 2**54}
# settings that are numbers in every kernel; of these three an ascending triple
_NUMERIC = re.compile(
    r"vm\..+|fs\.(?!binfmt_misc).+|net\.core\.(?!default_qdisc).+"
    r"|net\.ipv4\.(?:tcp|udp)_(?!congestion_control|(?:available|allowed)_|fastopen_key).+"
)
_TRIPLE = re.compile(r"net\.ipv4\.(?:tcp_mem|udp_mem|tcp_[rw]mem)")
RequirementName = Annotated[str, _matching(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", " is no package name")]
# Debian policy 5.6.7 and 5.6.12
AptName = Annotated[str, _matching(r"[a-z0-9][a-z0-9+.-]+", " is no Debian package name")]
AptVersion = Annotated[
    str,
    _matching(r"([0-9]+:)?[0-9][A-Za-z0-9.+~-]*", " is no Debian package version such as 8.6.0.163-1+cuda11.8"),
]
NcclName = Annotated[str, AfterValidator(check_name)]
NcclValue = Annotated[str, AfterValidator(check_value)]


class Strict(BaseModel):
    """Frozen; an unknown field is an error; a number may stand where text is meant."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)


class Published(Strict):
    """A file of facts that somebody else publishes: where they are from, and how long they are taken for true."""

    source: str
    read_on: date
    valid_until: date


class Sourced(Strict):
    """A profile that says of its fields, by their names, where the values are from."""

    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _notes_name_fields(self) -> Self:
        for group in ("unverified", "sources"):
            notes: dict[str, str] = getattr(self, group, {})
            unknown = [name for name in notes if name.partition(".")[0] not in type(self).model_fields]
            if unknown:
                kind = type(self).__name__.lower()
                raise ValueError(f"{group}: {', '.join(unknown)}: no such field of a {kind}")
        return self


Architecture = Literal["x86_64", "aarch64"]
GpuLink = Literal["nvswitch", "nvlink-bridge", "pcie"]


class Gpu(Strict):
    """One GPU of the node; all are alike."""

    model: str
    compute_capability: Annotated[Version, Field(pattern=r"^[0-9]+\.[0-9]$")]
    memory_gb: Annotated[int, Field(gt=0)] | None = None


class GpuGroup(Gpu):
    """GPUs of one kind, and how many of them the node has."""

    gpus: Annotated[int, Field(gt=0)]


class Nic(Strict):
    """Network interfaces of one kind, and the rate of each."""

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
    # follows from published figures: who misses it is warned
    is_predicted: bool = False


class Hardware(Sourced):
    """Hardware of a node; `gpus` None means unknown: measured, without a reference to hold it against."""

    description: str
    # of the processors; None if both kinds are sold
    architecture: Architecture | None = None
    gpus: Annotated[int, Field(ge=0)] | None
    gpu: Gpu | None = None
    # of a node with several kinds, in the place of `gpu`
    mixed: tuple[GpuGroup, ...] = ()
    # between all GPUs; a pair may have a better one
    link: GpuLink | None = None
    nvswitch: bool = False
    nics: tuple[Nic, ...] = ()
    cpu: Cpu | None = None
    memory_gb: int | None = None
    floors: tuple[Floor, ...] = ()
    # fields that no source confirms: shown as a warning wherever the hardware is used
    unverified: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _gpus_agree(self) -> Hardware:
        if not self.gpus and (self.gpu or self.nvswitch or self.link):
            raise ValueError("gpu, link and nvswitch need 'gpus' above 0")
        if self.link == "nvswitch" and not self.nvswitch:
            raise ValueError("link nvswitch needs 'nvswitch: true'")
        if self.mixed and (self.gpu or sum(group.gpus for group in self.mixed) != self.gpus):
            raise ValueError("mixed needs 'gpus' as many as its groups have together, and no 'gpu'")
        return self

    @property
    def has_rdma(self) -> bool:
        """Return whether it has InfiniBand or RoCE."""
        return any(nic.kind in ("infiniband", "roce") for nic in self.nics)

    @property
    def reduces_in_switch(self) -> bool:
        """Return whether its NVSwitches reduce data: from Hopper on."""
        return self.nvswitch and self.gpu is not None and version_key(self.gpu.compute_capability) >= (9, 0)

    @property
    def groups(self) -> tuple[GpuGroup, ...]:
        """The GPUs by kind; empty if the profile names none."""
        if self.gpu is None or not self.gpus:
            return self.mixed
        return (GpuGroup(gpus=self.gpus, **self.gpu.model_dump()),)


Os = Annotated[str, Field(pattern=r"^[a-z]+-[0-9]+(\.[0-9]+)?$")]
Flavour = Literal["proprietary", "open"]


class PythonRange(Strict):
    """Interpreters that the stack's wheels exist for, both ends included, as major.minor."""

    min: Version
    max: Version


Branch = Annotated[str, Field(pattern=r"^[1-9][0-9]{2}$")]


class Driver(Strict):
    """The driver that the stack installs where it may, and the lowest one that it works with."""

    branch: Branch
    # of systems whose repository begins with a later one
    branches: dict[Os, Branch] = Field(default_factory=dict)
    min: Version
    flavour: Flavour = "proprietary"

    def of_system(self, key: str) -> Driver:
        """Return it with the branch that a system as stacks name it gets."""
        return self.model_copy(update={"branch": self.branches.get(key, self.branch), "branches": {}})


class Toolkit(Strict):
    """The system's CUDA toolkit: for C++ builds; torch's wheel brings its own runtime."""

    # never the meta package `cuda`, which pulls a driver
    package: Annotated[str, Field(pattern=r"^cuda-toolkit-[0-9]+-[0-9]+$")]
    version: AptVersion | None = None


class SystemLibrary(Strict):
    """A library of the system with its exact packages: for C++ builds; torch loads the one of its wheel."""

    packages: Annotated[dict[AptName, AptVersion], Field(min_length=1)]


class SystemLibraries(Strict):
    """Libraries that C++ builds and nccl-tests find; none of it is what torch loads."""

    toolkit: Toolkit | None = None
    cudnn: SystemLibrary | None = None
    nccl: SystemLibrary | None = None


class Stack(Sourced):
    """Software of a node; `cuda`, `cudnn` and `nccl` are those that torch's wheel loads, None if it has none.

    Without `torch` no environment is made and none expected: whoever trains brings its own, in containers for one.
    """

    description: str
    os: tuple[Os, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    python: PythonRange | None = None
    torch: Version | None = None
    index: Annotated[str, Field(pattern=r"^([a-z0-9]+|(https?|file)://\S+)$")] | None = None
    # what comes from `index` alone, all else from uv's default index; empty: every name is looked up in `index` first
    index_packages: tuple[RequirementName, ...] = ("torch", "torchvision", "torchaudio")
    cuda: Version | None = None
    cudnn: Version | None = None
    nccl: Version | None = None
    driver: Driver | None = None
    system: SystemLibraries = SystemLibraries()
    dcgm: tuple[AptName, ...] = ()
    deepspeed: Version | None = None
    nccl_tests: Annotated[str, Field(pattern=r"^v[0-9][0-9.]*$")] | None = None
    packages: dict[RequirementName, Version] = Field(default_factory=dict)
    # fields that no source confirms: shown as a warning wherever the stack is used
    unverified: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _driver_is_for_cuda(self) -> Stack:
        if self.cuda is None and self.driver is not None:
            raise ValueError("driver: a stack without 'cuda' needs none")
        return self

    @model_validator(mode="after")
    def _torch_has_what_it_needs(self) -> Stack:
        if self.torch is not None and (self.python is None or self.index is None):
            raise ValueError("torch: it needs 'python' and 'index'")
        needing = ("python", "index", "cuda", "cudnn", "nccl", "deepspeed", "nccl_tests", "packages")
        given = [name for name in needing if getattr(self, name)]
        if self.torch is None and given:
            raise ValueError(f"{', '.join(given)}: of no use to a stack without 'torch'")
        return self

    @property
    def requirements(self) -> tuple[str, ...]:
        """Return what is installed into the environment, as pins with torch first; nothing without torch."""
        if self.torch is None:
            return ()
        extra = {**self.packages, **({"deepspeed": self.deepspeed} if self.deepspeed else {})}
        return (f"torch=={self.torch}", *(f"{name}=={version}" for name, version in sorted(extra.items())))


class Setting(Strict):
    """A value with its reason; `origin` is where it came from, filled in by `resolve`."""

    why: str
    source: str = ""
    origin: str = ""


class ValueSetting(Setting, Generic[T]):
    """A setting of one value; for limits soft and hard, in the units of limits.conf."""

    value: T


class SysctlSetting(ValueSetting[SysctlValue]):
    """One kernel setting, set exactly; with `never_lower` each number of it is only ever raised."""

    never_lower: bool = False


class NcclForm(Strict):
    """A value for NCCL versions below `below`; without it, for all others."""

    value: NcclValue
    below: Version | None = None


class NcclSetting(Setting):
    """One NCCL variable: one `value`, or `forms` for different versions of NCCL."""

    value: NcclValue | None = None
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
        """Return the value for this NCCL; None means a stack without NCCL, which gets the newest form."""
        for form in self.forms:
            if form.below is None or (nccl_version and version_key(nccl_version) < version_key(form.below)):
                return form.value
        return self.value or ""


class NicSettings(Strict):
    """Settings of the training interfaces; None leaves one alone."""

    # bytes of a frame's payload
    mtu: ValueSetting[Annotated[int, Field(ge=1280, le=9978)]] | None = None
    # receive and transmit rings at the device's own maximum
    rings: ValueSetting[Literal["max"]] | None = None
    # interrupts on the CPUs of the interface's NUMA node
    irq: ValueSetting[Literal["numa"]] | None = None


class GpuSettings(Strict):
    """Settings of the GPUs and their bridges; None leaves one alone."""

    # whether the driver stays loaded without a client
    persistence: ValueSetting[bool] | None = None
    # locked clocks as `graphics` or `memory,graphics` in MHz, or `max`, the highest graphics clock
    clocks: ValueSetting[Annotated[str, Field(pattern=r"^(max|([1-9][0-9]*,)?[1-9][0-9]*)$")]] | None = None
    # of each GPU
    power_limit_w: ValueSetting[Annotated[int, Field(ge=10)]] | None = None
    ecc: ValueSetting[bool] | None = None
    mig: ValueSetting[bool] | None = None
    compute_mode: ValueSetting[Literal["Default", "Exclusive_Process", "Prohibited"]] | None = None
    # PCIe access control services of the bridges
    acs: ValueSetting[Literal["off"]] | None = None


class Tuning(Strict):
    """Settings on top of a stock system."""

    description: str = ""
    allow_debug_variables: bool = False
    sysctl: dict[SysctlKey, SysctlSetting] = Field(default_factory=dict)
    nccl: dict[NcclName, NcclSetting] = Field(default_factory=dict)
    limits: dict[Literal["memlock", "nofile"], ValueSetting[Limit]] = Field(default_factory=dict)
    nic: NicSettings = NicSettings()
    gpu: GpuSettings = GpuSettings()

    @property
    def debug_variables(self) -> tuple[str, ...]:
        """Return its NCCL variables that NVIDIA calls debugging ones."""
        return tuple(name for name in sorted(self.nccl) if is_debug_variable(name))

    def nccl_env(self, nccl: str | None) -> dict[str, str]:
        """NCCL variables by name, rendered for this version of NCCL (None: a stack without NCCL)."""
        return {name: setting.render(nccl) for name, setting in sorted(self.nccl.items())}

    @model_validator(mode="after")
    def _a_login_lives_with_the_limits(self) -> Tuning:
        for name, setting in self.limits.items():
            least = _LEAST[name]
            if name == "nofile" and setting.value == "unlimited":
                raise ValueError(
                    "limits.nofile is unlimited: above every fs.nr_open, so that logins fail: say a number"
                )
            if setting.value.isdecimal() and int(setting.value) < least:
                raise ValueError(f"limits.{name} is {setting.value}, and with less than {least} logins fail: raise it")
            if setting.value.isdecimal() and int(setting.value) > _MOST[name]:
                raise ValueError(f"limits.{name} is {setting.value}, and no kernel takes more than {_MOST[name]}")
        return self

    @model_validator(mode="after")
    def _a_kernel_takes_the_values(self) -> Tuning:
        for key, setting in sorted(self.sysctl.items()):
            dotted, parts = key.replace("/", "."), setting.value.split()
            numbers = [int(word) for word in parts if re.fullmatch(r"-?[0-9]{1,20}", word)]
            if _NUMERIC.fullmatch(dotted) and len(numbers) < len(parts):
                raise ValueError(f"sysctl {key} takes whole numbers, and its value is {setting.value!r}")
            if _TRIPLE.fullmatch(dotted) and (len(numbers) != 3 or numbers != sorted(numbers) or numbers[0] < 0):
                raise ValueError(f"sysctl {key} takes three ascending numbers, and its value is {setting.value!r}")
        return self

    @model_validator(mode="after")
    def _no_names_of_one_host(self) -> Tuning:
        of_profile = [name for name, setting in sorted(self.nccl.items()) if setting.origin.startswith("tuning ")]
        names = [name for name in of_profile if is_host_variable(name)]
        if names:
            raise ValueError(
                f"{', '.join(names)}: names and numbers of interfaces differ from node to node, so no "
                "profile holds them; set them in the host variable nodectl_nccl_env"
            )
        return self

    @model_validator(mode="after")
    def _nccl_reads_the_values(self) -> Tuning:
        for name, setting in sorted(self.nccl.items()):
            for value in filter(None, (setting.value, *(form.value for form in setting.forms))):
                if wrong := why_no_value(name, value):
                    raise ValueError(f"{name}={value}: {wrong}")
        return self

    @model_validator(mode="after")
    def _debug_variables_are_asked_for(self) -> Tuning:
        if self.debug_variables and not self.allow_debug_variables:
            raise ValueError(
                f"{', '.join(self.debug_variables)}: of NCCL's debugging class, which NVIDIA says not to persist; "
                "a profile that means it says 'allow_debug_variables: true'"
            )
        return self

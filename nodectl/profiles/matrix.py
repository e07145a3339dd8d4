"""The compatibility matrix as typed rows; the rows themselves, with their sources, are data in compat.yml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import Field

from nodectl.profiles.gpus import catalogue_source, gpu_kind, products_of
from nodectl.profiles.load import shipped
from nodectl.profiles.nccl import version_key
from nodectl.profiles.schema import Architecture, Flavour, Os, Published, PythonRange, Stack, Strict, Version


class OlderCode(Strict):
    """Code of an earlier capability that a GPU runs where a CUDA has none of its own, and what is lost by it."""

    code_of: Version
    lost: str
    source: str


class GpuRow(Strict):
    """A generation of GPUs: the first CUDA with code for it, the one that dropped it, its drivers' branches."""

    compute_capability: Version
    name: str
    min_cuda: Version
    source: str = ""
    runs: OlderCode | None = None
    dropped_by: Version | None = None
    dropped_source: str = ""
    first_driver: Annotated[str, Field(pattern=r"^[1-9][0-9]{2}$")] | None = None
    first_driver_source: str = ""
    last_driver: Annotated[str, Field(pattern=r"^[1-9][0-9]{2}$")] | None = None
    last_driver_source: str = ""

    def other_driver(self, branch: str) -> tuple[str, str, str] | None:
        """(which drivers know this GPU, the nearest branch that does, source) for a branch that does not."""
        number = version_key(branch)[0]
        if self.first_driver and number < int(self.first_driver):
            return (
                f"is known to drivers from branch {self.first_driver} on",
                self.first_driver,
                self.first_driver_source,
            )
        if self.last_driver and number > int(self.last_driver):
            return f"is known to drivers up to branch {self.last_driver}", self.last_driver, self.last_driver_source
        return None


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """The GPUs of one PCI device id, and what they can compute."""

    compute_capability: str
    kinds: tuple[str, ...]
    source: str

    @property
    def name(self) -> str:
        """The kinds in words."""
        return " or ".join(self.kinds)

    def is_model(self, model: str) -> bool:
        """Return whether these can be the GPUs that the driver, or a profile, calls so."""
        return gpu_kind(model) in self.kinds


class CudaRow(Strict):
    """A major version of CUDA and the lowest driver that runs it."""

    major: int
    min_driver: Version
    source: str = ""


class FlavourRow(Strict):
    """The GPUs that a flavour of the driver's kernel modules is for."""

    flavour: Flavour
    from_capability: Version | None = None
    below_capability: Version | None = None
    source: str = ""


class TorchRow(Strict):
    """One build of torch, and what its wheel loads; fields in `unsure` are general knowledge, with `build` all of it.

    `also` are patch releases with the same build.
    """

    torch: Version
    also: tuple[Version, ...] = ()
    cuda: Version | None = None
    cudnn: Version | None = None
    nccl: Version | None = None
    python: PythonRange
    # of a machine whose wheels end elsewhere
    python_of: dict[Architecture, PythonRange] = Field(default_factory=dict)
    architectures: tuple[Architecture, ...] = ("x86_64",)
    unsure: tuple[str, ...] = ()
    source: str = ""

    @property
    def index(self) -> str:
        """The name of the build's folder in PyTorch's index."""
        return f"cu{self.cuda.replace('.', '')}" if self.cuda else "cpu"


class KernelRow(Strict):
    """Compute capabilities that the builds of some torch versions with a CUDA hold code for."""

    cuda: Version
    torch_from: Version = "0"
    torch_below: Version | None = None
    architecture: Architecture = "x86_64"
    capabilities: tuple[Version, ...]
    source: str = ""

    def holds(self, stack: Stack, architecture: str) -> bool:
        """Return whether this row is about the stack's torch on such a machine."""
        if stack.torch is None or (self.cuda, self.architecture) != (cuda_minor(stack.cuda), architecture):
            return False
        torch = version_key(stack.torch.partition("+")[0])
        below = self.torch_below is None or torch < version_key(self.torch_below)
        return version_key(self.torch_from) <= torch and below

    def serves(self, capability: str) -> bool:
        """Code for a capability runs on it and on later minor versions of the same major one."""
        major, minor = version_key(capability)[:2]
        return any(version_key(held)[0] == major and version_key(held)[1] <= minor for held in self.capabilities)


class DeepspeedRow(Strict):
    """Versions of DeepSpeed that do not work with a torch, and why."""

    below: Version
    torch_from: Version
    why: str
    source: str = ""


class TorchvisionRows(Strict):
    """The torch that each torchvision was built for, and the versions of both from which on a later torch serves."""

    torch: dict[Version, Version]
    later: dict[Version, Version]
    source: str

    def serves(self, torchvision: str, torch: str) -> bool | None:
        """Return whether this torchvision can be used with this torch; None if it is not known."""
        plain = torchvision.partition("+")[0]
        if plain in self.torch:
            return _release(self.torch[plain]) == _release(torch)
        lowest = [low for start, low in self.later.items() if version_key(start) <= version_key(plain)]
        return version_key(lowest[-1]) <= _release(torch) if lowest else None

    def of(self, torch: str) -> str | None:
        """Return the oldest torchvision for a torch; None if none is known."""
        return next((name for name in (*self.torch, *self.later) if self.serves(name, torch)), None)


class Releases(Strict):
    """Every release of torch from `first` to `last`."""

    first: Version
    last: Version
    versions: tuple[Version, ...]
    source: str

    def deny(self, torch: str) -> bool:
        """There is no such release: the list reaches beyond it, and has it not."""
        releases = {_release(version) for version in self.versions}
        return _release(self.first) <= _release(torch) <= _release(self.last) and _release(torch) not in releases

    def nearest(self, torch: str) -> tuple[str, ...]:
        """Return the highest release below it, then the lowest above it."""
        below = [version for version in self.versions if _release(version) < _release(torch)]
        above = [version for version in self.versions if _release(version) > _release(torch)]
        return (*below[-1:], *above[:1])


class GlibcRow(Strict):
    """The least glibc that wheels of torch run on: of all builds from a version on, or of one CUDA, or one machine."""

    least: Version
    torch_from: Version
    cuda: Version | None = None
    architecture: Architecture | None = None
    source: str

    def holds(self, stack: Stack, architecture: str) -> bool:
        """Return whether this row is about the stack's torch on such a machine."""
        torch = version_key((stack.torch or "0").partition("+")[0])
        cuda = self.cuda is None or self.cuda == cuda_minor(stack.cuda)
        return version_key(self.torch_from) <= torch and cuda and self.architecture in (None, architecture)


class SystemRow(Strict):
    """A system, as stacks name it, and its glibc."""

    os: Os
    glibc: Version
    source: str


class NumpyRow(Strict):
    """Versions of numpy up to the next row: the Python versions that they have wheels for, and the first torch."""

    numpy_from: Version
    python: PythonRange
    torch_from: Version | None = None
    torch_source: str = ""
    source: str = ""


class Matrix(Published):
    """The rows of compat.yml, by what they are about."""

    gpus: tuple[GpuRow, ...]
    cuda: tuple[CudaRow, ...]
    flavours: tuple[FlavourRow, ...]
    torch: tuple[TorchRow, ...]
    kernels: tuple[KernelRow, ...]
    deepspeed: tuple[DeepspeedRow, ...]
    torchvision: TorchvisionRows
    releases: Releases
    glibc: tuple[GlibcRow, ...]
    systems: tuple[SystemRow, ...]
    numpy: tuple[NumpyRow, ...]

    def gpu(self, compute_capability: str | None) -> GpuRow | None:
        """Return the row of a compute capability; None if the matrix does not know it."""
        return next((row for row in self.gpus if row.compute_capability == compute_capability), None)

    def device(self, identity: str) -> DeviceRow | None:
        """Return what a PCI device id stands for; None if the catalogue does not know it."""
        found = products_of(identity)
        kinds = tuple(dict.fromkeys(product.kind for product in found))
        return DeviceRow(found[0].compute_capability, kinds, catalogue_source()) if found else None

    def cuda_row(self, cuda: str | None) -> CudaRow | None:
        """Return the row of a CUDA version's major; None if the matrix does not know it."""
        return next((row for row in self.cuda if cuda and row.major == version_key(cuda)[0]), None)

    def torch_row(self, stack: Stack) -> TorchRow | None:
        """Return the row of the stack's torch with the stack's CUDA; None if the matrix does not know it."""
        return next((row for row in self.torch_rows(stack.torch) if row.cuda == cuda_minor(stack.cuda)), None)

    def torch_rows(self, torch: str | None) -> tuple[TorchRow, ...]:
        """All builds of a torch; the build that a version names with a + does not matter."""
        plain = (torch or "").partition("+")[0]
        return tuple(row for row in self.torch if plain in (row.torch, *row.also))

    def kernel_row(self, stack: Stack, architecture: str) -> KernelRow | None:
        """Return what the stack's torch holds code for on such a machine; None if the matrix does not know it."""
        return next((row for row in self.kernels if row.holds(stack, architecture)), None)

    def glibc_row(self, stack: Stack, architecture: str) -> GlibcRow | None:
        """Return the least glibc of the stack's torch on such a machine; None if the matrix does not know it."""
        return next((row for row in self.glibc if row.holds(stack, architecture)), None)

    def system(self, os: str) -> SystemRow | None:
        """Return the row of a system; None if the matrix does not know it."""
        return next((row for row in self.systems if row.os == os), None)

    def numpy_row(self, numpy: str) -> NumpyRow | None:
        """Return the row of a numpy; None if it is older than what the matrix knows."""
        older = [row for row in self.numpy if version_key(row.numpy_from) <= version_key(numpy)]
        return max(older, key=lambda row: version_key(row.numpy_from), default=None)


@cache
def matrix() -> Matrix:
    """Return the shipped matrix, read once."""
    return shipped(Matrix, "compat.yml")


def _release(torch: str) -> tuple[int, ...]:
    """2.9 and 2.9.0, with or without the name of a build, are one release."""
    return (*version_key(torch.partition("+")[0]), 0, 0, 0)[:3]


def cuda_minor(cuda: str | None) -> str | None:
    """Return `12.8` of `12.8.1`."""
    return ".".join(cuda.split(".")[:2]) if cuda else None

"""The public addresses that stacks come from; they stand in stack/_addresses.yml and nowhere else."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import Field

from nodectl.profiles.load import shipped
from nodectl.profiles.schema import Published, Strict

_Url = Annotated[str, Field(pattern=r"^https://[^\s/]\S*[^\s/]$")]

_Fingerprint = Annotated[str, Field(pattern=r"^[0-9A-F]{40}$")]


class NvidiaRepository(Strict):
    """NVIDIA's repositories: fingerprints of the keys that sign them, each with the distributions that it signs."""

    base_url: _Url
    keys: dict[_Fingerprint, tuple[str, ...]]


class NcclTests(Strict):
    """The repository of nccl-tests, and the commit that each tag named when it was read: a tag can move."""

    url: _Url
    commits: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]]


class Addresses(Published):
    """The addresses of PyTorch's wheels, NVIDIA's packages and the sources of nccl-tests."""

    pytorch: _Url
    nvidia: NvidiaRepository
    nccl_tests: NcclTests

    def index(self, name: str) -> str:
        """Return the full address of an index: PyTorch's folder of that name, or the address itself."""
        return name if "://" in name else f"{self.pytorch}/{name}"


@cache
def addresses() -> Addresses:
    """Return the shipped addresses, read once."""
    return shipped(Addresses, "stack/_addresses.yml")

"""A host that is to take part in a job: its facts, and what the job needs of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from nodectl.checks.check import Check, Judgement, Subject
from nodectl.common import node_paths
from nodectl.facts.job import GpuCount, JobAddress
from nodectl.model.finding import Finding

# found while the hosts are asked, by nobody's judgement
REACHABLE = Check("launch_reachable", fires="unknown: no answer over SSH")
PAYLOAD = Check("launch_payload", fires="they cannot run there: no Python, or no room")
WAY_TO_FIRST = Check(
    "launch_way_to_first",
    fires="one of them does not arrive; unknown: it could not be tried",
)
Fact = TypeVar("Fact")
PathKind = Literal["any", "file", "folder"]


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """Hold what a job needs of its hosts; `venv` None means that the launcher brings its own Python.

    `code_bytes` is what will be copied to each host; `min_free_mib` must be left over after that. `paths` are what it
    reads there, each a file, a folder or any. `engine` is what starts the ranks.
    `image` is the container's.
    """

    candidate_ports: tuple[int, ...]
    interface: str | None = None
    checkpoint_dir: str | None = None
    launcher: str = node_paths.LAUNCHER
    venv: str | None = node_paths.VENV
    min_free_mib: int = 256
    code_bytes: int = 0
    ports_needed: int = 2
    paths: tuple[tuple[str, PathKind], ...] = ()
    engine: str = "torchrun"
    image: str = ""
    venvs: tuple[tuple[str, str], ...] = ()

    def of(self, host: str) -> JobNeeds:
        """Return the needs for one host: with its own environment, where `venvs` has one by its name."""
        return replace(self, venv=dict(self.venvs).get(host, self.venv))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Subject):
    """One host of a job of `hosts` hosts; whoever could not answer preflight is none."""

    needs: JobNeeds
    hosts: int

    def known(self, subject: str, kind: type[Fact]) -> Fact:
        """Return a fact of nodectl.facts.job; TypeError if it is another kind: all come with one answer."""
        value = self.facts[subject]
        if not isinstance(value, kind):
            raise TypeError(f"{self.host}: {subject} is {value!r}, no {kind.__name__}")
        return value

    @property
    def address(self) -> JobAddress:
        """Return the address by which the others reach it."""
        return self.known("job_address", JobAddress)

    @property
    def gpu_count(self) -> int | None:
        """Return the number of GPUs; None if the driver is there and does not answer."""
        return self.known("gpu_count", GpuCount).count


@dataclass(frozen=True, slots=True, eq=False)
class JointJudgement(Judgement[Sequence[Candidate]]):
    """A judgement of all hosts of a job against one another."""


def judges_together(
    *checks: Check, reads: Sequence[str]
) -> Callable[[Callable[[Sequence[Candidate]], Iterator[Finding]]], JointJudgement]:
    """Register a function of all hosts of a job as the judge of `checks`."""

    def register(function: Callable[[Sequence[Candidate]], Iterator[Finding]]) -> JointJudgement:
        return JointJudgement(checks, tuple(reads), function)

    return register


def is_loopback(address: str) -> bool:
    """Return whether the address is the host's own alone; it may carry a zone, as in fe80::1%eth0."""
    return ipaddress.ip_address(address.split("%")[0]).is_loopback

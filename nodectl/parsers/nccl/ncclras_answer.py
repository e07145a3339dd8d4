"""What `ncclras` tells, whichever form it was printed in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TOOL = "ncclras"


@dataclass(frozen=True, slots=True)
class RasJob:
    """The job's size; None in JSON, which does not give it."""

    nodes: int | None
    processes: int | None
    gpus: int | None


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """One communicator; `id` is None where the text names only those with a problem, `errors` is as printed."""

    id: str | None
    ranks: int
    missing: int | None
    status: str
    state: str | None
    errors: str | None


@dataclass(frozen=True, slots=True)
class RasProcess:
    """A process that does not answer; `device` is its first GPU."""

    host: str | None
    pid: int | None
    device: int | None


@dataclass(frozen=True, slots=True)
class RasRank:
    """A rank, and where it runs as far as NCCL knows."""

    rank: int
    host: str | None
    device: int | None
    communicator: str | None


@dataclass(frozen=True, slots=True)
class NcclRas:
    """`dead` are given up by NCCL, `unresponsive` not yet; `outliers` are the fewer ranks of a mismatch."""

    nccl_version: str | None
    job: RasJob
    communicators: tuple[RasCommunicator, ...]
    dead: tuple[RasProcess, ...]
    unresponsive: tuple[RasProcess, ...]
    missing_ranks: tuple[RasRank, ...]
    outliers: tuple[RasRank, ...]


def status_of(errors: Iterable[str]) -> str:
    """The worst of NCCL's words: data that is missing hides what else is wrong."""
    words = set(errors)
    return next((word for word in ("INCOMPLETE", "ERROR", "MISMATCH") if word in words), "OK")

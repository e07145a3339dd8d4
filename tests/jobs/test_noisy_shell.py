"""A host whose login shell prints: everything that nodectl reads from it is found all the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nodectl.jobs.follow import Line, follow
from nodectl.jobs.listing import read_jobs
from nodectl.jobs.nodes import clean, stop
from nodectl.model.host import Host
from nodectl.model.job import JobState
from nodectl.model.result import CommandResult
from nodectl.transport.base import OnOutput, Transport
from tests.payload.fleet import Fleet

if TYPE_CHECKING:
    from tests.transport.sshd_server import Sshd


class WithState:
    """Every command has this state folder, so that a test leaves nothing in the login's own."""

    def __init__(self, inner: Transport, folder: Path) -> None:
        self.inner, self.folder = inner, folder

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        inside = ["env", f"XDG_STATE_HOME={self.folder}", *argv]
        return self.inner.run(host, inside, timeout_s=timeout_s, stdin=stdin, on_output=on_output)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 1)
    yield made
    made.close()


@pytest.fixture
def quiet(transport: Transport, fleet: Fleet) -> WithState:
    return WithState(transport, fleet.root / "host0")


def test_its_jobs_are_listed_read_stopped_and_cleaned(noisy_sshd: Sshd, quiet: WithState, fleet: Fleet) -> None:
    job_id = fleet.launch("import os, time\nos.write(1, b'up\\n')\ntime.sleep(1000)\n")
    fleet.wait_up(job_id, "up", 2)
    hosts = [noisy_sshd.host("gpu07")]
    listing = read_jobs(quiet, hosts, 8)
    assert (listing.find(job_id).state, listing.unreachable) == (JobState.RUNNING, {})
    assert list(follow(quiet, hosts, job_id, once=True)) == [Line("gpu07", "up")] * 2
    assert stop(quiet, hosts, job_id, 8).lines["gpu07"][0]["state"]["state"] == "stopped"
    assert clean(quiet, hosts, [job_id], 8).lines["gpu07"] == ({"id": job_id, "removed": True, "problem": ""},)

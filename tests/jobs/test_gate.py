"""Which hosts a launch with `--gate` goes without."""

from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.checks.launch.candidate import REACHABLE, WAY_TO_FIRST
from nodectl.cli import jobs as cli_jobs
from nodectl.cli.launch import _follow
from nodectl.jobs.plan import NodeCount, fewer
from nodectl.jobs.preflight import passing
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status

HOSTS = [Host(name, name) for name in ("gpu01", "gpu02", "gpu03", "gpu04")]


def finding(host: str, check: str, status: Status = Status.FAILED) -> Finding:
    return Finding(host, check, status)


def names(*findings: Finding) -> list[str]:
    return [host.name for host in passing(HOSTS, findings)]


def test_hosts_with_a_fault_are_left_out_and_warnings_are_none() -> None:
    assert names(finding("gpu02", REACHABLE.id), finding("gpu03", "disk", Status.WARNING)) == [
        "gpu01",
        "gpu03",
        "gpu04",
    ]
    assert names(finding("gpu04", "gpus", Status.UNKNOWN)) == ["gpu01", "gpu02", "gpu03"]


def test_where_most_find_no_way_to_the_first_host_that_one_is_at_fault() -> None:
    assert names(finding("gpu02", WAY_TO_FIRST.id), finding("gpu04", WAY_TO_FIRST.id)) == ["gpu02", "gpu03", "gpu04"]
    assert names(finding("gpu02", WAY_TO_FIRST.id)) == ["gpu01", "gpu03", "gpu04"]


def test_with_fewer_hosts_an_attempt_takes_no_more_than_there_are() -> None:
    assert fewer(NodeCount(2, 4), 3) == NodeCount(2, 3)
    assert fewer(NodeCount(2, 2), 3) == NodeCount(2, 2)
    assert fewer(None, 3) is None


def test_hosts_that_were_left_out_are_not_followed_nor_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(cli_jobs, "follow_output", lambda app, hosts, job_id: asked.update(followed=hosts) or {})
    monkeypatch.setattr(cli_jobs, "conclude", lambda app, job_id, gone, more: asked.update(gone=gone) or 0)
    app: Any = SimpleNamespace(hosts=HOSTS)
    assert _follow(app, HOSTS[:3], "20261121-040000-ab12", traced=False) == 0
    assert asked == {"followed": HOSTS[:3], "gone": {"gpu04": "it is not in the job"}}

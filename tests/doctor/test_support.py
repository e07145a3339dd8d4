"""What ends soon on a host is told, and which copies of others' facts are too old."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from nodectl.doctor import machine
from nodectl.doctor.hosts import supported
from nodectl.facts.kernel import Kernel
from nodectl.facts.versions import Versions
from nodectl.model.status import Status
from nodectl.profiles.support import last_torch

UBUNTU = Kernel("Linux", "6.8.0", "x86_64", "ubuntu", "22.04", "Ubuntu 22.04.5 LTS")
ROCKY = Kernel("Linux", "5.14.0", "x86_64", "rocky", "9.4", "Rocky Linux 9.4")
UNHEARD = Kernel("Linux", "6.8.0", "x86_64", "slackware", "15", "Slackware 15")


@pytest.mark.parametrize(
    ("driver", "kernel", "today", "told"),
    [
        ("535.309.01", UBUNTU, date(2026, 11, 28), [Status.WARNING, Status.OK]),
        ("580.126.09", ROCKY, date(2026, 11, 28), [Status.OK, Status.OK]),
        ("595.45.04", UBUNTU, date(2027, 3, 10), [Status.WARNING, Status.WARNING]),
        ("999.1", UNHEARD, date(2026, 11, 28), []),
        (None, UBUNTU, date(2026, 11, 28), [Status.OK]),
    ],
)
def test_what_ends_within_90_days_is_told(driver: str | None, kernel: Kernel, today: date, told: list[Status]) -> None:
    facts = {"versions": Versions("", driver=driver), "kernel": kernel}
    findings = list(supported("a", facts, today))
    assert [finding.status for finding in findings] == told
    assert all(finding.remedy for finding in findings if finding.status is Status.WARNING)


@pytest.mark.parametrize(
    ("versions", "today", "told"),
    [
        (Versions("", torch="2.14.1+cu126", cuda="12.6"), date(2026, 11, 28), [Status.WARNING]),
        (Versions("", torch="2.9.1", cuda="12.8.90"), date(2026, 11, 28), [Status.WARNING]),
        (Versions("", torch="2.15.0", cuda="13.2"), date(2026, 11, 28), [Status.OK]),
        (Versions("", torch="2.15.0"), date(2026, 11, 28), []),
        (Versions("", python3="3.12.3", venv_python="3.10.12"), date(2026, 11, 28), [Status.WARNING]),
        (Versions("", python3="3.9.18", venv_python="3.11.9"), date(2027, 8, 2), [Status.OK]),
        (Versions("", python3="3.9.18", venv_python="3.11.9"), date(2027, 8, 3), [Status.WARNING]),
        (Versions("", python3="3.10.12", venv_python="3.10.12"), date(2026, 11, 28), []),
        (Versions("", python3="3.10.12"), date(2026, 11, 28), []),
    ],
)
def test_the_end_of_pythons_and_of_pytorchs_builds_is_told(versions: Versions, today: date, told: list[Status]) -> None:
    findings = list(supported("a", {"versions": versions}, today))
    assert [finding.status for finding in findings] == told
    assert all(finding.remedy for finding in findings if finding.status is Status.WARNING)


def test_the_last_pytorch_with_a_cuda() -> None:
    assert last_torch("12.6") == ("2.14.1", "2.15.0", ("13.0", "13.2"))
    assert last_torch("13.0") is last_torch("14.7") is None


def test_an_old_copy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [{"source": "x", "read_on": date(2020, 1, 1), "valid_until": end} for end in (date(2021, 1, 1), date.max)]
    monkeypatch.setattr(machine, "published_files", lambda: [(Path("a.yml"), heads[0]), (Path("b.yml"), heads[1])])
    assert [(one.subject, one.status) for one in machine.data()] == [("a.yml", Status.WARNING), ("b.yml", Status.OK)]

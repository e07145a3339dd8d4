"""The copies of published facts that are too old."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from nodectl.doctor import course
from nodectl.model.status import Status


def test_an_old_copy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [{"source": "x", "read_on": date(2020, 1, 1), "valid_until": end} for end in (date(2021, 1, 1), date.max)]
    monkeypatch.setattr(course, "published_files", lambda: [(Path("a.yml"), heads[0]), (Path("b.yml"), heads[1])])
    assert [(one.subject, one.status) for one in course.data()] == [("a.yml", Status.WARNING), ("b.yml", Status.OK)]

"""`nodectl accept`: interruption, and what --out writes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nodectl.cli.accept import _carried_out
from nodectl.ledger.accept import store
from nodectl.ledger.accept.judge import verdicts
from tests.ledger.accept.made import acceptance, done, means

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("kept", [False, True])
def test_what_is_kept_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, kept: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = acceptance(done("health"))
    if kept:
        own = replace(own, hosts=verdicts(own.steps, (), {}, means()))

    @contextmanager
    def interrupted(*_: Any, **__: Any) -> Iterator[None]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("nodectl.cli.accept.hold", interrupted)
    app: Any = SimpleNamespace(hosts=[])
    with pytest.raises(KeyboardInterrupt):
        _carried_out(app, own, {}, force=False, limited=False)
    told = str(store.folder_of(own.id) / store.DOCUMENT) if kept else "nothing was tried yet"
    assert f"the acceptance was ended early; {'what it found so far: ' * kept}{told}" in capsys.readouterr().err


def test_a_folder_with_files_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").touch()
    argv = [sys.executable, "-m", "nodectl", "-i", "localhost,", "accept", "--level", "quick", "--out", "out"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    ended = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--out out: the folder is not empty" in ended.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept"]

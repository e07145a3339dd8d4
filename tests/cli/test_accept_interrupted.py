"""`nodectl accept` that is interrupted says what was kept."""

from __future__ import annotations

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

"""`nodectl accept` that is interrupted before its first step: nothing is there to go on with, and it says so."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nodectl.cli.accept import _carried_out
from nodectl.ledger.accept import store
from tests.ledger.accept.made import acceptance, done

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(
    ("kept", "said"), [(False, "nothing is kept"), (True, "continue it: nodectl accept --resume ")]
)
def test_what_is_kept_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, kept: bool, said: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    own = acceptance(done("health"))
    if kept:
        store.save(own, store.folder_of(own.id))

    @contextmanager
    def interrupted(*_: Any, **__: Any) -> Iterator[None]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("nodectl.cli.accept.hold", interrupted)
    app: Any = SimpleNamespace(hosts=[])
    with pytest.raises(KeyboardInterrupt):
        _carried_out(app, own, {}, force=False, limited=False)
    assert said in capsys.readouterr().err

"""Streams that are closed, or that nobody reads, change nothing but what is seen."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodectl.provision.run import environment

_NODECTL = f"{shlex.quote(sys.executable)} -m nodectl"


@pytest.mark.parametrize(
    ("line", "status", "seen"),
    [
        ("{} --replay h100-8 facts >&- 2>&-", 0, ""),
        ("{} -i /absent doctor <&- >&-", 1, ""),
        ("{} --replay h100-8 facts | head -1; exit ${{PIPESTATUS[0]}}", (0, 141), "SUBJECT"),
        ("LC_ALL=C {} bench claims 0 | head -1; exit ${{PIPESTATUS[0]}}", (0, 141), "article 0: 128核"),
    ],
)
def test_closed_and_cut(
    cli_env: Mapping[str, str], tmp_path: Path, line: str, status: int | tuple[int, int], seen: str
) -> None:
    argv = ["bash", "-c", line.format(_NODECTL)]
    done = subprocess.run(argv, env=cli_env, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode in (status if isinstance(status, tuple) else (status,))
    assert done.stdout.decode().startswith(seen) and bool(done.stdout) is bool(seen)
    assert b"error" not in done.stderr.lower() and b"[WARNING]" not in done.stderr


@pytest.mark.parametrize(("named", "given"), [("C", "C.UTF-8"), ("xx_XX", "C.UTF-8"), ("C.UTF-8", None)])
def test_playbooks_run_in_utf_8(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, given: str | None) -> None:
    monkeypatch.setenv("LC_ALL", named)
    assert environment("run", tmp_path).get("LC_ALL") == given

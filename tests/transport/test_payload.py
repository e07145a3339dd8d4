"""The payload onto a host, over a real sshd."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nodectl.common.resources import payload_dir
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.transport import payload
from nodectl.transport.base import OnOutput, Transport
from nodectl.transport.payload import payload_argv, run_payload

if TYPE_CHECKING:
    from tests.transport.sshd_server import Sshd


class Counting:
    """Counts the round trips of another transport."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.runs = inner, 0

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        self.runs += 1
        return self.inner.run(host, argv, timeout_s=timeout_s, stdin=stdin, on_output=on_output)

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A payload folder with one program."""
    folder = tmp_path / "payload"
    folder.mkdir()
    shutil.copy(payload_dir() / "run.py", folder)
    (folder / "helper.py").write_text("WORD = 'hello'\n")
    (folder / "greet.py").write_text(
        "import sys\nfrom . import helper\ndef main(argv):\n"
        "    print(helper.WORD, *argv, sys.stdin.read())\n    sys.stderr.write('err')\n"
        "    return 3 if 'fail' in argv else 0\n"
    )
    monkeypatch.setattr(payload, "payload_dir", lambda: folder)
    payload._packed.cache_clear()
    yield folder
    payload._packed.cache_clear()


def test_payload_is_copied_once(sshd: Sshd, transport: Transport, programs: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    counting = Counting(_WithState(transport, state))
    done = run_payload(counting, sshd.host(), "greet", ["a b"], timeout_s=30, stdin=b"input")
    assert (done.stdout, done.stderr, done.exit_status, counting.runs) == ("hello a b input\n", "err", 0, 3)
    again = run_payload(counting, sshd.host(), "greet", ["fail"], timeout_s=30)
    assert (again.stdout, again.exit_status, counting.runs) == ("hello fail \n", 3, 4)
    copies = list((state / "nodectl" / "payload").iterdir())
    assert [copy.stat().st_mode & 0o777 for copy in copies] == [0o700]
    (programs / "helper.py").write_text("WORD = 'bye'\n")
    payload._packed.cache_clear()
    assert run_payload(counting, sshd.host(), "greet", [], timeout_s=30).stdout == "bye \n"


@pytest.mark.parametrize(
    ("setting", "bare"),
    [
        ("PYTHONPATH={evil}", True),
        ("PYTHONPATH={evil}", False),
        ("PYTHONINSPECT=1", True),
        ("PYTHONHOME=/nowhere", False),
    ],
)
def test_what_a_login_sets_for_its_own_python_is_not_for_ours(
    programs: Path, tmp_path: Path, setting: str, bare: bool
) -> None:
    (tmp_path / "evil").mkdir()
    for name in ("os", "importlib", "sitecustomize", "sys"):
        (tmp_path / "evil" / f"{name}.py").write_text("raise SystemExit(9)")
    packed, digest = payload._packed()
    home = tmp_path / "home"
    there = home / ".local/state/nodectl/payload" / digest
    there.mkdir(parents=True)
    subprocess.run(["tar", "-xf", "-", "-C", str(there)], input=packed, check=True)
    argv = ["env", f"HOME={home}", "XDG_STATE_HOME=", setting.format(evil=tmp_path / "evil")]
    done = subprocess.run(
        [*argv, *payload_argv("greet", ["you"], bare=bare)], input=b"in", capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello you in\n", b"err")


class _WithState(Counting):
    """The login user's state folder elsewhere, so that a test leaves nothing in it."""

    def __init__(self, inner: Transport, state: Path) -> None:
        super().__init__(inner)
        self.state = state

    def run(
        self,
        host: Host,
        argv: Sequence[str],
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        elsewhere = ["env", f"XDG_STATE_HOME={self.state}", *argv]
        return super().run(host, elsewhere, timeout_s=timeout_s, stdin=stdin, on_output=on_output)


def test_the_same_programs_pack_to_the_same_bytes(programs: Path) -> None:
    first = payload._packed()
    (programs / "__pycache__").mkdir()
    (programs / "__pycache__" / "greet.pyc").write_bytes(b"compiled")
    (programs / "greet.py").touch()
    payload._packed.cache_clear()
    assert payload._packed() == first
    (programs / "greet.py").chmod(0o755)
    payload._packed.cache_clear()
    assert payload._packed() != first

"""What modules write gets the SELinux context of its place, where the kernel has SELinux; restorecon is a recorder."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Utils = Callable[[str], ModuleType]


@pytest.fixture
def restorecon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, utils: Utils) -> Path:
    """The file in which the calls stand; the kernel has a policy as long as `policy` is there."""
    calls, program = tmp_path / "calls", tmp_path / "bin" / "restorecon"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    program.chmod(0o755)
    (tmp_path / "policy").touch()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(utils("files"), "SELINUX", str(tmp_path / "policy"))
    return calls


def test_a_file_is_relabelled_in_its_place(restorecon: Path, tmp_path: Path, utils: Utils) -> None:
    file = tmp_path / "etc" / "90-nodectl.conf"
    utils("files").write_text(str(file), "x\n")
    assert restorecon.read_text() == f"{file}\n" and file.read_text() == "x\n"


def test_an_environment_is_relabelled_before_it_is_the_current_one(
    restorecon: Path, tmp_path: Path, utils: Utils
) -> None:
    (tmp_path / "venvs" / "one").mkdir(parents=True)
    utils("env_store").activate(tmp_path / "venv", tmp_path / "venvs" / "one")
    assert restorecon.read_text() == f"-R {tmp_path}/venvs/one\n"


def test_without_selinux_nothing_is_called(restorecon: Path, tmp_path: Path, utils: Utils) -> None:
    (tmp_path / "policy").unlink()
    utils("files").write_text(str(tmp_path / "file"), "x\n")
    assert not restorecon.exists()

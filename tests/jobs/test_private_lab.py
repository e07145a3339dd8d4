"""`launch` from several kinds of home, by script, module and folder: a search on the hosts finds nothing private."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LabUnderTest
from tests.jobs.test_private import KEPT, MARK, fill

# what stays is decided by functions that tests/jobs/test_private.py shows in every run
pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LAUNCHER = "/usr/local/bin/private-launcher"
_SHOWS = "#!/bin/sh\nfind . -type f | sort\n"


@pytest.fixture(scope="module")
def lab(lab4: LabUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabUnderTest]:
    part = lab4.part(2, tmp_path_factory.mktemp("private"))
    for host in part.hosts:
        part.ssh(host, f"printf %s {shlex.quote(_SHOWS)} > {_LAUNCHER} && chmod 755 {_LAUNCHER}")
    yield part
    for host in part.hosts:
        part.ssh(host, f"rm -f {_LAUNCHER}")


# each gives where the operator stands and his environment
Kind = Callable[[Path], tuple[Path, dict[str, str]]]


def _plain(home: Path) -> tuple[Path, dict[str, str]]:
    return home, {"HOME": str(home)}


def _careless(home: Path) -> tuple[Path, dict[str, str]]:
    folder = fill(home / "project", *KEPT, ".git/config")
    (folder / "train.py").write_text("")
    return folder, {"HOME": str(home)}


def _cloned(home: Path) -> tuple[Path, dict[str, str]]:
    folder = fill(home / "cloned", ".git/HEAD", "vendor/lib/.nodectlignore")
    outside = {"etc": "/etc", "k": "../.ssh/config", "o": "../other", "env": "/proc/self/environ"}
    for place, target in {"h": str(home), "vendor/lib/h": str(home), **outside}.items():
        (folder / place).symlink_to(target)
    for place in (".nodectlignore", ".gitignore", "vendor/lib/.nodectlignore"):
        (folder / place).write_text("!h/.ssh/config\n!**\n")
    (folder / "train.py").write_text("")
    return folder, {"HOME": str(home)}


_KINDS = [_plain, _careless, _cloned]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(each, id=each.__name__[1:], marks=[pytest.mark.slow] * (each is not _plain)) for each in _KINDS],
)
def test_nothing_private_is_on_any_host(
    lab: LabUnderTest, nodectl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    home = fill(tmp_path / "home" / "me", *KEPT, "Documents/salaries.ods", "other/.git/HEAD")
    (home / "train.py").write_text("")
    (home / ".ssh" / "config").write_text(f"# {MARK}\n")
    place, env = kind(home)
    monkeypatch.chdir(place)

    def launch(*words: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = nodectl(
            *("-i", lab.inventory, "launch", "-e", f"launcher_path={_LAUNCHER}", "--nproc-per-node", "1", *words),
            check=False, env=env,
        )  # fmt: skip
        return done

    for words in (["train.py"], [str(place / "train.py")], ["-m", "train"], ["--code", str(home), "train.py"]):
        done = launch(*words)
        assert done.returncode == (2 if "--code" in words else 0), done.stderr
        assert "./train.py" in done.stdout or "--code" in words
    for host in lab.hosts:
        found = f"grep -rlaF {MARK} $HOME /tmp /var/tmp /dev/shm; find $HOME -name '.ssh' -path '*jobs*'"
        assert lab.ssh(host, f"{found}; true") == ""
    nodectl("-i", lab.inventory, "jobs", "clean", check=False)

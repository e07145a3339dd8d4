"""Which interpreter a stack gets: the distribution's, apt's, uv's, or a refusal that says what to do."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.roles.run_module import run_module

BUILD = "https://example.invalid/download/20261009/cpython-3.10.22%2B20261009-x86_64-unknown-linux-gnu.tar.gz"


@pytest.fixture(scope="module")
def stack(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("python", "stack_python")


def build(version: str, arch: str = "x86_64", libc: str = "gnu") -> dict[str, Any]:
    return {"key": f"cpython-{version}-linux-{arch}-{libc}", "version": version.partition("+")[0], "url": BUILD}


def run(tmp_path: Path, **arguments: Any) -> dict[str, Any]:
    wanted = {"min": "3.8", "max": "3.14", "folder": str(tmp_path / "python"), "uv": "/nonexistent/uv", "state": "look"}
    return run_module("plugins/modules/stack_python.py", {**wanted, **arguments}, folder=tmp_path)


def test_versions_are_tried_from_the_newest(stack: ModuleType) -> None:
    assert stack.minors("3.7", "3.10") == ["3.10", "3.9", "3.8", "3.7"]
    assert stack.python_env.serves("3.10.12", "3.7", "3.10") and not stack.python_env.serves("3.11.2", "3.7", "3.10")
    assert not stack.python_env.serves("", "3.7", "3.10")


def test_takes_the_newest_release_for_this_machine(stack: ModuleType) -> None:
    other = [build("3.11.0rc1"), build("3.11.9", arch="aarch64"), build("3.11.9", libc="musl"), build("3.11.9+debug")]
    assert stack.best_build([*other, build("3.10.22"), build("3.9.1")], "x86_64")["version"] == "3.10.22"
    assert stack.best_build(other, "x86_64") is None


def test_a_mirror_holds_a_build_below_its_date(stack: ModuleType, tmp_path: Path) -> None:
    tail = "20261009/cpython-3.10.22%2B20261009-x86_64-unknown-linux-gnu.tar.gz"
    assert stack.mirrored(BUILD, "") == BUILD
    assert stack.mirrored(BUILD, "https://mirror.invalid/python/") == f"https://mirror.invalid/python/{tail}"
    place = stack.mirrored(BUILD, str(tmp_path))
    assert "no file" in stack.unreachable(place) and "2B" not in stack.unreachable(place)
    (tmp_path / "20261009").mkdir()
    (tmp_path / "20261009" / "cpython-3.10.22+20261009-x86_64-unknown-linux-gnu.tar.gz").touch()
    assert stack.unreachable(place) == ""
    assert "127.0.0.1" in stack.unreachable("http://127.0.0.1:9/x")


def test_the_distributions_python_is_taken_where_it_serves(tmp_path: Path) -> None:
    answer = run(tmp_path)
    assert answer["path"] == "/usr/bin/python3" and answer["how"] == "present" and not answer["changed"]


def test_uvs_own_folder_is_looked_at(tmp_path: Path) -> None:
    place = tmp_path / "python" / "cpython-3.6.15-linux-x86_64-gnu" / "bin"
    place.mkdir(parents=True)
    (place / "python3.6").write_text("#!/bin/sh\necho 3.6.15\n")
    (place / "python3.6").chmod(0o755)
    answer = run(tmp_path, min="3.5", max="3.6")
    assert (answer["path"], answer["version"]) == (str(place / "python3.6"), "3.6.15")


def test_an_operators_choice_that_does_not_serve_is_refused(tmp_path: Path) -> None:
    answer = run(tmp_path, interpreter="/usr/bin/python3", min="3.5", max="3.6")
    assert answer["failed"] and "the stack's wheels exist for 3.5 to 3.6" in answer["msg"]
    answer = run(tmp_path, interpreter="/nonexistent/python")
    assert answer["failed"] and "does not run" in answer["msg"]


def test_where_none_can_be_had_the_refusal_says_what_would_do(tmp_path: Path) -> None:
    planned = run(tmp_path, min="3.5", max="3.6")
    assert planned["how"] == "uv", "uv may still have one"
    nothing = run(tmp_path, min="3.5", max="3.6", builds=[])
    assert nothing["failed"] and "uv has no build of them" in nothing["msg"]
    away = run(tmp_path, min="3.5", max="3.6", builds=[build("3.6.15")], mirror=str(tmp_path / "mirror"))
    assert away["failed"] and f"no file {tmp_path}/mirror/20261009/" in away["msg"]
    assert "Set python_mirror" in away["msg"] and "choose a stack for Python" in away["msg"]


def test_uv_is_asked_for_one_version_into_its_own_folder(tmp_path: Path) -> None:
    uv, told = tmp_path / "uv", tmp_path / "told"
    place = tmp_path / "python" / "cpython-3.6.15-linux-x86_64-gnu" / "bin"
    # a recorded uv: notes how it was called and leaves an interpreter as the real one does
    uv.write_text(
        f'#!/bin/sh\necho "$@" > {told}\nmkdir -p {place}\n'
        f"printf '#!/bin/sh\\necho 3.6.15\\n' > {place}/python3.6\nchmod 755 {place}/python3.6\n"
    )
    uv.chmod(0o755)
    mirror = tmp_path / "mirror" / "20261009"
    mirror.mkdir(parents=True)
    (mirror / "cpython-3.10.22+20261009-x86_64-unknown-linux-gnu.tar.gz").touch()
    answer = run(
        tmp_path,
        min="3.5",
        max="3.6",
        uv=str(uv),
        mirror=str(tmp_path / "mirror"),
        builds=[build("3.6.15")],
        state="present",
    )
    assert answer["changed"] and answer["path"] == str(place / "python3.6") and answer["how"] == "present", answer
    words = told.read_text().split()
    assert words[:2] == ["python", "install"] and words[-1] == "cpython-3.6.15-linux-x86_64-gnu"
    assert words[words.index("--install-dir") + 1] == str(tmp_path / "python")
    assert words[words.index("--mirror") + 1] == f"file://{tmp_path}/mirror" and "--no-bin" in words

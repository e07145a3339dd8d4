"""Environments are made aside and swapped in one step: by real uv, from small wheels, and killed in the middle."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from uv import find_uv_bin

from ansible_collections.nodectl.fleet.plugins.module_utils import env_store, python_env
from nodectl.common.resources import share_dir
from tests.roles.run_module import run_module
from tests.roles.wheels import locked_line, simple_index, wheel

PYTHON = "/usr/bin/python3"
Make = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"no {PYTHON} here")


@pytest.fixture(scope="module")
def venv(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("pytorch", "python_venv")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """What the module is told: wheels of torch and numpy that are stand-ins, in two versions."""
    for name, version in (("torch", "9.1"), ("torch", "9.2"), ("numpy", "8.0")):
        wheel(tmp_path / "wheels", name, version)
    return {
        "path": str(tmp_path / "opt" / "venv"),
        "store": str(tmp_path / "opt" / "venvs"),
        "python": PYTHON,
        "python_min": "3.8",
        "python_max": "3.14",
        "requirements": ["torch==9.1", "numpy==8.0"],
        "uv": find_uv_bin(),
        "index": "https://example.invalid/simple",
        "wheelhouse": str(tmp_path / "wheels"),
    }


@pytest.fixture
def make(settings: dict[str, Any], tmp_path: Path) -> Make:
    """`make(check=…, changed argument=…)` runs the module."""

    def run(check: bool = False, **changes: Any) -> dict[str, Any]:
        scratch = tmp_path / "tmp"
        scratch.mkdir(exist_ok=True)
        path = "plugins/modules/python_venv.py"
        return run_module(path, {**settings, **changes}, folder=scratch, check=check)

    return run


def environment(path: Path, *names: str) -> Path:
    site = path / "lib" / "python3.11" / "site-packages"
    for name in names:
        (site / f"{name}.dist-info").mkdir(parents=True)
        (site / f"{name}.dist-info" / "RECORD").touch()
    return path


def test_versions_come_from_dist_info(tmp_path: Path) -> None:
    path = environment(tmp_path, "torch-2.13.0+cpu", "typing_extensions-4.16.0", "nvidia_nccl_cu13-2.29.7")
    (path / "lib" / "python3.11" / "site-packages" / "half-1.0.dist-info").mkdir()  # an install that was cut off
    found = python_env.distributions(path)
    assert found == {"torch": "2.13.0+cpu", "typing-extensions": "4.16.0", "nvidia-nccl-cu13": "2.29.7"}


@pytest.mark.parametrize(
    ("requirement", "missing"),
    [
        ("torch==2.13.0", False),
        ("torch==2.13.0+cpu", False),
        ("torch==2.13.0+cu130", True),
        ("torch==2.12.0", True),
        ("Typing.Extensions==4.16.0", False),
        ("numpy==2.2.6", True),
    ],
)
def test_a_pin_is_met_by_its_version(requirement: str, missing: bool) -> None:
    found = {"torch": "2.13.0+cpu", "typing-extensions": "4.16.0"}
    assert python_env.lacking([requirement], found) == [requirement] * missing


def test_an_environment_whose_interpreter_is_gone_is_none(tmp_path: Path) -> None:
    assert python_env.venv_python(tmp_path) == ""
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.2\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/nonexistent/python3")
    assert python_env.venv_python(tmp_path) == ""
    (tmp_path / "bin" / "python").unlink()
    (tmp_path / "bin" / "python").symlink_to("/bin/sh")
    assert python_env.venv_python(tmp_path) == "3.11.2"


def test_links_give_the_packages_and_programs_of_their_own(tmp_path: Path) -> None:
    ready, own = environment(tmp_path / "ready", "torch-2.13.0"), environment(tmp_path / "own", "uv-1")
    for path in (ready, own):
        (path / "bin").mkdir()
    (ready / "bin" / "torchrun").write_text(f"#!{ready}/bin/python\nimport x\n")
    (ready / "bin" / "activate").write_text("# for the shell\n")
    (ready / "bin" / "python").symlink_to("/usr/bin/python3")
    env_store.link_packages(ready, own, Path("/opt/final"))
    assert python_env.distributions(own) == {"torch": "2.13.0", "uv": "1"}
    assert (own / "bin" / "torchrun").read_text() == "#!/opt/final/bin/python\nimport x\n"
    assert (own / "bin" / "torchrun").stat().st_mode & 0o777 == 0o755
    assert not (own / "bin" / "activate").exists() and not (own / "bin" / "python").exists()


def test_whatever_decides_the_content_is_in_the_name(venv: ModuleType, settings: dict[str, Any]) -> None:
    wanted = {**settings, "constraints": [], "wheel": ""}
    names = {
        venv.name_of({**wanted, **change}, version)
        for change, version in (
            ({}, "3.11.2"),
            ({}, "3.12.0"),
            ({"index": "https://example.invalid/cu118"}, "3.11.2"),
            ({"constraints": ["sympy==1.14"]}, "3.11.2"),
            ({"requirements": ["torch==9.1+cu118"]}, "3.11.2"),
        )
    }
    assert len(names) == 5
    assert venv.name_of(wanted, "3.11.9") in names, "a patch of the interpreter is no new environment"
    turned = {**wanted, "requirements": wanted["requirements"][::-1]}
    assert venv.name_of(turned, "3.11.2") in names


def test_a_run_makes_it_a_second_changes_nothing_and_a_new_version_leaves_the_old(make: Make, tmp_path: Path) -> None:
    link, store = tmp_path / "opt" / "venv", tmp_path / "opt" / "venvs"
    planned = make(check=True)
    assert planned["changed"] and not link.parent.exists(), "--check makes nothing"
    assert "torch==9.1" in planned["diff"]["after"]

    first = make()
    assert first["changed"] and first["found"] == {"torch": "9.1", "numpy": "8.0"}, first
    shown = subprocess.run(
        [link / "bin" / "python", "-c", "import torch; print(torch.__version__)"], capture_output=True
    )
    assert shown.stdout == b"9.1\n"
    assert (link / "bin" / "torch-run").exists() and ".partial" not in (link / "bin" / "torch-run").read_text()
    assert not make()["changed"] and not make(check=True)["changed"]

    old = link.resolve()
    second = make(requirements=["torch==9.2", "numpy==8.0"])
    assert second["changed"] and second["found"]["torch"] == "9.2" and link.resolve() != old
    assert python_env.distributions(old)["torch"] == "9.1"
    back = make()
    assert back["changed"] and link.resolve() == old, "what is there is linked again, not built again"
    assert sorted(path.name[:6] for path in store.iterdir()) == ["torch-", "torch-"]


def test_each_package_has_one_index(make: Make, tmp_path: Path) -> None:
    """What the stack's index gives comes from nowhere else, and what it does not give from the default one."""
    stack = simple_index(tmp_path / "stack", ("torch", "9.1"), ("numpy", "7.0"))
    default = simple_index(tmp_path / "default", ("numpy", "8.0"), ("torch", "9.2"))
    given = {"index": stack, "wheelhouse": "", "build_environment": {"UV_DEFAULT_INDEX": default}}
    answer = make(**given, index_packages=["torch"])
    assert answer["changed"] and answer["found"] == {"torch": "9.1", "numpy": "8.0"}, answer
    elsewhere = make(**given, index_packages=["torch"], requirements=["torch==9.2", "numpy==8.0"])
    assert elsewhere["failed"] and "uv could not install torch==9.2" in elsewhere["msg"], elsewhere
    first = make(**given, constraints=["torch==9.1"])
    assert first["failed"], "a name that the first index has is taken from nowhere else"


def test_installs_the_locks_files_by_their_digests(make: Make, tmp_path: Path) -> None:
    lines = [locked_line(tmp_path / "wheels", name, version) for name, version in (("torch", "9.1"), ("numpy", "8.0"))]
    wheel(tmp_path / "wheels", "extra", "1.0")
    answer = make(locked=[*lines, locked_line(tmp_path / "wheels", "extra", "1.0")])
    assert answer["changed"] and answer["found"] == {"torch": "9.1", "numpy": "8.0", "extra": "1.0"}, answer
    for number, (locked, why) in enumerate(
        (
            ([lines[0].rpartition(":")[0] + ":" + "0" * 64, lines[1]], "digest|hash"),
            ([lines[0]], "these are missing: numpy==8.0"),
            ([*lines, "--extra-index-url http://127.0.0.1:9/simple"], "is no name==version with sha256 digests"),
        )
    ):
        refused = make(locked=locked, store=str(tmp_path / f"store{number}"), path=str(tmp_path / f"venv{number}"))
        assert refused["failed"] and re.search(why, refused["msg"].lower()), refused
        assert not (tmp_path / f"venv{number}").exists()


def test_an_environment_that_lost_a_package_is_made_anew_beside_it(make: Make, tmp_path: Path) -> None:
    make()
    link = tmp_path / "opt" / "venv"
    broken = link.resolve()
    next(broken.glob("lib/*/site-packages/numpy-8.0.dist-info/RECORD")).unlink()
    assert make(state="look")["missing"] == ["numpy==8.0"]
    assert make()["changed"] and link.resolve().name == f"{broken.name}.2"


def test_a_folder_in_the_links_place_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "opt" / "venv").mkdir(parents=True)
    assert "move it away" in make()["msg"]


def test_earlier_environments_go_but_for_the_last_and_what_is_used(make: Make, tmp_path: Path) -> None:
    link, store = tmp_path / "opt" / "venv", tmp_path / "opt" / "venvs"
    make()
    for number, name in enumerate(("oldest", "older", "used", "old")):
        (store / name / "bin").mkdir(parents=True)
        os.utime(store / name, (1000 + number, 1000 + number))
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", f"{store}/oldest/bin/x"])
    try:
        assert env_store.prune(store, link, keep=1) == ["used", "older"]
    finally:
        sleeper.kill()
        sleeper.wait()
    left = {path.name for path in store.iterdir()}
    assert left == {"oldest", "old", link.resolve().name}


def test_killed_in_the_middle_nothing_half_made_is_seen_and_the_next_run_converges(
    make: Make, settings: dict[str, Any], tmp_path: Path
) -> None:
    link, store, slow = tmp_path / "opt" / "venv", tmp_path / "opt" / "venvs", tmp_path / "uv"
    make()
    before = link.readlink()
    # uv that stops where it would install
    slow.write_text(
        f'#!/bin/sh\n[ "$1" = pip ] && {{ touch {tmp_path}/reached; sleep 60; }}\nexec {settings["uv"]} "$@"\n'
    )
    slow.chmod(0o755)
    arguments = {**settings, "uv": str(slow), "requirements": ["torch==9.2"], "_ansible_tmpdir": str(tmp_path)}
    code = (
        "import runpy, sys; from ansible.module_utils import basic; basic._ANSIBLE_ARGS = sys.stdin.buffer.read();"
        "basic._ANSIBLE_PROFILE = 'legacy'; runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", code, str(share_dir() / "plugins/modules/python_venv.py")],
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert killed.stdin is not None
    killed.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    killed.stdin.close()
    deadline = time.monotonic() + 30
    while not (tmp_path / "reached").exists():
        assert time.monotonic() < deadline and killed.poll() is None
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert link.readlink() == before and make(state="look")["complete"]
    assert list(store.glob(".partial-*")), "the half-made one is there, under a name that nothing uses"
    after = make(requirements=["torch==9.2"])
    assert after["changed"] and after["found"]["torch"] == "9.2"
    assert not list(store.glob(".*")) and not list(link.parent.glob(".*"))


def test_what_cannot_be_says_what_to_set(make: Make, tmp_path: Path) -> None:
    narrow = make(python_min="3.1", python_max="3.2")
    assert narrow["failed"] and "the stack's wheels exist for 3.1 to 3.2; set python_interpreter" in narrow["msg"]
    (tmp_path / "empty").mkdir()
    empty = make(wheelhouse=str(tmp_path / "empty"))
    assert empty["failed"] and "no wheel in" in empty["msg"] and "nodectl_wheelhouse" in empty["msg"]
    absent = make(requirements=["torch==7"])
    assert absent["failed"] and "uv could not install torch==7" in absent["msg"]
    assert not (tmp_path / "opt" / "venv").exists()

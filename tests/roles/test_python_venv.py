"""What an environment holds is read from its files; what lacks, and which interpreter will not do, is said."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def venv(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("pytorch", "python_venv")


def environment(path: Path, *names: str) -> Path:
    site = path / "lib" / "python3.11" / "site-packages"
    for name in names:
        (site / f"{name}.dist-info").mkdir(parents=True)
        (site / f"{name}.dist-info" / "RECORD").touch()
    return path


def test_versions_come_from_dist_info(venv: ModuleType, tmp_path: Path) -> None:
    path = environment(tmp_path, "torch-2.13.0+cpu", "typing_extensions-4.16.0", "nvidia_nccl_cu13-2.29.7")
    (path / "lib" / "python3.11" / "site-packages" / "half-1.0.dist-info").mkdir()  # an install that was cut off
    found = venv.distributions(path)
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
def test_a_pin_is_met_by_its_version(venv: ModuleType, requirement: str, missing: bool) -> None:
    found = {"torch": "2.13.0+cpu", "typing-extensions": "4.16.0"}
    assert venv.lacking([requirement], found) == [requirement] * missing


def test_an_environment_whose_interpreter_is_gone_is_none(venv: ModuleType, tmp_path: Path) -> None:
    assert venv.venv_python(tmp_path) == ""
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.2\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to("/nonexistent/python3")
    assert venv.venv_python(tmp_path) == ""
    (tmp_path / "bin" / "python").unlink()
    (tmp_path / "bin" / "python").symlink_to("/bin/sh")
    assert venv.venv_python(tmp_path) == "3.11.2"


def test_links_give_the_packages_and_programs_of_their_own(venv: ModuleType, tmp_path: Path) -> None:
    ready, own = environment(tmp_path / "ready", "torch-2.13.0"), environment(tmp_path / "own", "uv-1")
    for path in (ready, own):
        (path / "bin").mkdir()
    (ready / "bin" / "torchrun").write_text(f"#!{ready}/bin/python\nimport x\n")
    (ready / "bin" / "activate").write_text("# for the shell\n")
    (ready / "bin" / "python").symlink_to("/usr/bin/python3")
    venv.link(ready, own)
    assert venv.distributions(own) == {"torch": "2.13.0", "uv": "1"}
    assert (own / "bin" / "torchrun").read_text() == f"#!{own}/bin/python\nimport x\n"
    assert (own / "bin" / "torchrun").stat().st_mode & 0o777 == 0o755
    assert not (own / "bin" / "activate").exists() and not (own / "bin" / "python").exists()

"""What torch says and loads is judged from its own words; the answer is asked for again when anything changed."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ansible_collections.nodectl.fleet.plugins.module_utils import python_env
from nodectl.common.paths import cache_dir
from tests.roles.run_module import run_module

LIVE = {
    "torch": "2.1.2+cu121",
    "cuda": "12.1",
    "gpus": 8,
    "nccl": "2.18.1",
    "nccl_path": "/opt/v/lib/python3.10/site-packages/nvidia/nccl/lib/libnccl.so.2",
    "cudnn": "8.9.2",
    "cudnn_path": "/opt/v/lib/python3.10/site-packages/nvidia/cudnn/lib/libcudnn.so.8",
}


@pytest.fixture(scope="module")
def look(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("pytorch", "torch_look")


def statuses(findings: list[dict[str, str]]) -> dict[str, str]:
    return {finding["subject"]: finding["status"] for finding in findings}


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        ("12.1.105", "12.1", True),
        ("8.9.2.26", "8.9.2", True),
        ("12.1", "12.4", False),
        ("2.18.1", "2.18.3", False),
        ("2.18.1", "", False),
    ],
)
def test_versions_agree_as_far_as_both_go(look: ModuleType, expected: str, actual: str, same: bool) -> None:
    assert look.agree(expected, actual) is same


def test_what_torch_loads_is_compared_with_the_profile(look: ModuleType) -> None:
    wanted = {"cuda": "12.1", "cudnn": "8.9.2.26", "nccl": "2.19.3"}
    assert statuses(look.judge_import(LIVE, wanted, [])) == {
        "import": "ok",
        "CUDA": "ok",
        "cuDNN": "ok",
        "NCCL": "failed",
    }
    assert statuses(look.judge_import(LIVE, wanted, ["nccl"]))["NCCL"] == "warning"
    assert statuses(look.judge_import({**LIVE, "cudnn": None}, wanted, []))["cuDNN"] == "failed"
    broken = look.judge_import({"error": "ImportError: libcudart.so.12"}, wanted, [])
    assert [finding["actual"] for finding in broken] == ["ImportError: libcudart.so.12"]


def test_a_second_copy_is_named_and_the_one_in_the_way_is_a_warning(look: ModuleType) -> None:
    system = {"nccl": "/usr/lib/x86_64-linux-gnu/libnccl.so.2.17.1"}
    (twice,) = look.judge_system(LIVE, system, ["/opt/v"])
    assert twice["status"] == "ok" and "torch's 2.18.1 and the system's 2.17.1" in twice["actual"]
    assert "torch loads the first" in twice["actual"]
    shadowed = {**LIVE, "nccl": "2.17.1", "nccl_path": "/usr/local/lib/libnccl.so.2"}
    (warned,) = look.judge_system(shadowed, system, ["/opt/v"])
    assert warned["status"] == "warning" and "LD_LIBRARY_PATH" in warned["remedy"]


def test_a_search_path_with_a_second_copy_warns(look: ModuleType, tmp_path: Path) -> None:
    for name in ("mine", "theirs", "harmless"):
        (tmp_path / name).mkdir()
    (tmp_path / "theirs" / "libnccl.so.2").touch()
    (tmp_path / "mine" / "libcudnn.so.8").touch()
    (tmp_path / "harmless" / "libz.so.1").touch()
    folders = [str(tmp_path / name) for name in ("harmless", "mine", "theirs")]
    (found,) = look.judge_search_path(folders, [str(tmp_path / "mine")])
    assert found["actual"] == f"{tmp_path}/theirs holds libnccl"


def test_an_answer_is_kept_until_something_changed(tmp_path: Path) -> None:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    (site / "torch-1.0.dist-info").mkdir(parents=True)
    record = site / "torch-1.0.dist-info" / "RECORD"
    record.write_text("a")
    asked: list[int] = []

    def ask() -> dict[str, int]:
        asked.append(1)
        return {"n": len(asked)}

    def answer(keep: bool = True) -> Any:
        stamp = python_env.environment_stamp(tmp_path / "env")
        return python_env.remembered(tmp_path / "cache.json", stamp, ask, keep=keep)

    assert answer(keep=False) == {"n": 1} and not (tmp_path / "cache.json").exists()
    assert answer() == {"n": 2} and answer() == {"n": 2}
    record.write_text("b")
    os.utime(record, (1, 1))
    assert answer() == {"n": 3}
    (site / "numpy").mkdir()
    assert answer() == {"n": 4}
    (tmp_path / "cache.json").write_text("{")
    assert answer() == {"n": 5} and json.loads((tmp_path / "cache.json").read_text())["answer"] == {"n": 5}


def test_the_labs_own_environment_is_imported_for_real(tmp_path: Path) -> None:
    path = cache_dir() / "lab-share" / "venv"
    if not (path / "bin" / "python").exists():
        pytest.skip(f"no {path}; python -m nodectl.provision.wheels fills it")
    cache = tmp_path / "torch.json"
    wanted = {"path": str(path), "requirements": ["torch==2.13.0", "numpy==1.0"], "cache": str(cache)}
    answer = run_module("plugins/modules/torch_look.py", {**wanted, "expected": {"nccl": "2.29.7"}}, folder=tmp_path)
    assert answer["torch"]["torch"].startswith("2.13.0"), answer
    said = {(finding["subject"], finding["status"]): finding["actual"] for finding in answer["findings"]}
    assert said[str(path), "failed"] == "not there", "numpy's pin is not met"
    assert said["import", "ok"].startswith("torch 2.13.0") and said["NCCL", "failed"] == "torch has none"
    before = cache.stat().st_mtime_ns
    run_module("plugins/modules/torch_look.py", wanted, folder=tmp_path)
    assert cache.stat().st_mtime_ns == before

"""Never lower, go back to what was, and say what this kernel cannot hold: on a folder in place of /proc/sys."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.roles.run_module import run_module

RMEM, WMEM, CEILING = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.core.rmem_max"
ARTICLE = [
    {"key": RMEM, "value": "4096 87380 16777216"},
    {"key": WMEM, "value": "4096 65536 16777216"},
    {"key": CEILING, "value": "16777216"},
]
DEFAULTS = {RMEM: "4096\t131072\t6291456\n", WMEM: "4096\t16384\t4194304\n"}


class Kernel:
    """A folder that looks like /proc/sys, and the module run on it as Ansible runs it."""

    def __init__(self, folder: Path, values: dict[str, str]) -> None:
        self.folder, self.root, self.file = folder, folder / "sys", folder / "etc" / "90-nodectl.conf"
        for key, value in values.items():
            self.set(key, value)

    def path(self, key: str) -> Path:
        return self.root / key.replace(".", "/")

    def set(self, key: str, value: str) -> None:
        self.path(key).parent.mkdir(parents=True, exist_ok=True)
        self.path(key).write_text(value)

    def get(self, key: str) -> str:
        return " ".join(self.path(key).read_text().split())

    def run(self, settings: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        arguments = {"settings": settings, "file": str(self.file), "record": str(self.folder / "record.json")}
        arguments |= {"root": str(self.root)}
        check = bool(options.pop("check", False))
        module = "plugins/modules/kernel_settings.py"
        return run_module(module, arguments | options, folder=self.folder, check=check)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path, DEFAULTS)


@pytest.mark.parametrize(
    ("present", "wanted", "never_lower", "effective"),
    [
        ("4096 131072 6291456", "4096 87380 16777216", True, "4096 131072 16777216"),
        ("4096 131072 33554432", "4096 87380 16777216", True, "4096 131072 33554432"),
        ("33554432", "16777216", True, "33554432"),
        ("60", "10", False, "10"),
        ("cubic", "bbr", True, "bbr"),
        ("1 2", "3", True, "3"),
        ("-1", "4", True, "4"),
    ],
)
def test_each_number_is_only_raised(
    role_module: Callable[[str, str], ModuleType], present: str, wanted: str, never_lower: bool, effective: str
) -> None:
    assert role_module("kernel_settings", "kernel_settings").merge(present, wanted, never_lower) == effective


def test_a_second_run_changes_nothing_and_says_the_same(kernel: Kernel) -> None:
    first, second = kernel.run(ARTICLE), kernel.run(ARTICLE)
    assert first["changed"] and not second["changed"]
    assert first["report"] == second["report"]
    assert any(f"{RMEM}: kept at 4096 131072 16777216" in line for line in first["report"])
    assert any(f"{CEILING}: not settable on this host" in line for line in first["report"])
    assert kernel.get(RMEM) == "4096 131072 16777216" and kernel.get(WMEM) == "4096 65536 16777216"
    assert f"{RMEM} = 4096 131072 16777216" in kernel.file.read_text() and CEILING not in kernel.file.read_text()


def test_an_empty_tuning_goes_back_to_what_was(kernel: Kernel) -> None:
    kernel.run(ARTICLE)
    back = kernel.run([])
    assert back["changed"] and not kernel.file.exists() and not (kernel.folder / "record.json").exists()
    assert kernel.get(RMEM) == "4096 131072 6291456" and kernel.get(WMEM) == "4096 16384 4194304"
    assert not kernel.run([])["changed"]


def test_what_the_first_version_recorded_goes_back(kernel: Kernel) -> None:
    kernel.set(WMEM, "4096 65536 16777216")
    former = {WMEM: {"before": "4096 16384 4194304", "applied": "4096 65536 16777216"}}
    (kernel.folder / "record.json").write_text(json.dumps(former))
    assert kernel.run([])["changed"] and kernel.get(WMEM) == "4096 16384 4194304"
    assert not (kernel.folder / "record.json").exists()


def test_going_back_leaves_what_somebody_else_set_since(kernel: Kernel) -> None:
    kernel.run(ARTICLE)
    kernel.set(RMEM, "4096 131072 99999999")
    assert kernel.run(ARTICLE)["changed"], "the drop-in names the old value and must not win at the next boot"
    assert kernel.get(RMEM) == "4096 131072 99999999"
    kernel.run([])
    assert kernel.get(RMEM) == "4096 131072 99999999" and kernel.get(WMEM) == "4096 16384 4194304"


def test_check_changes_nothing_and_its_diff_is_what_then_happens(kernel: Kernel) -> None:
    checked = kernel.run(ARTICLE, check=True)
    assert checked["changed"] and kernel.get(RMEM) == "4096 131072 6291456" and not kernel.file.exists()
    done = kernel.run(ARTICLE)
    assert checked["diff"] == done["diff"]
    assert done["diff"][0]["after"] == kernel.file.read_text()
    assert f"{RMEM} = 4096 131072 16777216" in done["diff"][1]["after"]
    assert not kernel.run(ARTICLE, check=True)["changed"]


def test_drift_is_put_right(kernel: Kernel) -> None:
    kernel.run(ARTICLE)
    kernel.set(WMEM, "4096 16384 4194304")
    assert kernel.run(ARTICLE)["changed"] and kernel.get(WMEM) == "4096 65536 16777216"


def test_a_run_killed_before_the_kernel_was_set_is_finished_by_the_next(kernel: Kernel) -> None:
    kernel.run(ARTICLE)
    for key, value in DEFAULTS.items():  # as if only the record and the file had been written
        kernel.set(key, value)
    assert kernel.run(ARTICLE)["changed"] and kernel.get(WMEM) == "4096 65536 16777216"
    kernel.run([])
    assert kernel.get(WMEM) == "4096 16384 4194304"


def test_an_exact_setting_may_lower(kernel: Kernel) -> None:
    kernel.set("vm.swappiness", "60\n")
    kernel.run([{"key": "vm.swappiness", "value": "10", "never_lower": False}])
    assert kernel.get("vm.swappiness") == "10"
    kernel.run([])
    assert kernel.get("vm.swappiness") == "60"


def test_a_value_that_is_live_already_is_in_the_file_too(kernel: Kernel) -> None:
    kernel.set(WMEM, "4096 65536 16777216")
    assert kernel.run(ARTICLE)["changed"] and f"{WMEM} = 4096 65536 16777216" in kernel.file.read_text()
    assert not kernel.run(ARTICLE)["changed"]
    kernel.file.unlink()
    assert kernel.run(ARTICLE)["changed"] and f"{WMEM} = 4096 65536 16777216" in kernel.file.read_text()
    kernel.run([])
    assert not kernel.file.exists() and kernel.get(WMEM) == "4096 65536 16777216"

"""PyTorch's own words where it is imported: the libraries it loads, and the answer kept until something changed."""

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from nodectl.common.paths import cache_dir
from nodectl.common.resources import payload_dir


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_import", payload_dir() / "facts" / "torch_import.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CACHE", tmp_path / "kept")
    return module


def test_a_search_path_with_a_second_copy_is_named(
    look: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mine", "theirs", "harmless"):
        (tmp_path / name).mkdir()
    (tmp_path / "theirs" / "libnccl.so.2").touch()
    (tmp_path / "mine" / "libcudnn.so.8").touch()
    (tmp_path / "harmless" / "libz.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(str(tmp_path / name) for name in ("harmless", "mine", "theirs")))
    assert look.shadowing([str(tmp_path / "mine")]) == {str(tmp_path / "theirs"): ["libnccl"]}


def test_an_answer_is_kept_until_something_changed(
    look: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    (site / "deepspeed-1.0.dist-info").mkdir(parents=True)
    record = site / "deepspeed-1.0.dist-info" / "RECORD"
    record.write_text("a")
    asked: list[str] = []

    def imported(name: str) -> SimpleNamespace:
        asked.append(name)
        return SimpleNamespace(__version__=f"{len(asked)}.0")

    monkeypatch.setattr(look.importlib, "import_module", imported)

    def answer() -> dict[str, str]:
        found: dict[str, str] = look.imported("deepspeed", look.stamp(site))
        return found

    assert answer() == answer() == {"version": "1.0"}
    record.write_text("b")
    os.utime(record, (1, 1))
    assert answer() == {"version": "2.0"}
    (site / "numpy").mkdir()
    assert answer() == {"version": "3.0"}
    (tmp_path / "kept" / "deepspeed_import.json").write_text("{")
    assert answer() == {"version": "4.0"}
    monkeypatch.setattr(look, "CACHE", Path("/proc/nowhere"))
    assert answer() == {"version": "5.0"}, "a host that takes no file is asked again"


def test_the_labs_own_environment_is_imported_for_real() -> None:
    python = cache_dir() / "lab-share" / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no {python}; python -m nodectl.provision.wheels fills it")
    text = (payload_dir() / "facts" / "torch_import.py").read_text()
    shown = subprocess.run([python, "-c", text, "torch"], capture_output=True, text=True, check=True).stdout
    answer = json.loads(shown.partition("NODECTL ")[2])
    assert answer["version"].startswith("2.13.0") and answer["cuda"] == "" and "numpy" in answer["distributions"]

"""What Ansible ships as YAML is the same parsed and kept, and a damaged or missing copy costs time only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ansible
import pytest
import yaml

from nodectl.inventory import shipped_yaml

FILES = ("base.yml", "ansible_builtin_runtime.yml")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "nodectl" / "ansible"


def _parse(text: Any) -> Any:
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _fail(text: Any) -> Any:
    raise AssertionError("parsed again")


@pytest.mark.parametrize("name", FILES)
def test_a_kept_copy_is_what_was_parsed(cache: Path, name: str) -> None:
    text = (Path(ansible.__file__).parent / "config" / name).read_bytes()
    parsed = shipped_yaml._kept(text, "settings", _parse)
    assert parsed == _parse(text)
    assert shipped_yaml._kept(text, "settings", _fail) == parsed
    assert shipped_yaml._kept(text + b"\nmore: 1\n", "settings", _parse) == {**parsed, "more": 1}


def test_a_damaged_copy_is_parsed_again(cache: Path) -> None:
    text = "a: 1\n" + "#" * shipped_yaml._LARGE_BYTES
    shipped_yaml._kept(text, "names", _parse)
    (copy,) = cache.iterdir()
    copy.write_text('{"a": ')
    assert shipped_yaml._kept(text, "names", _parse) == {"a": 1}
    assert shipped_yaml._kept(text, "names", _fail) == {"a": 1}


def test_what_json_cannot_hold_is_parsed_each_time(cache: Path) -> None:
    text = "a: 2026-01-01\n1: b\n" + "#" * shipped_yaml._LARGE_BYTES
    assert shipped_yaml._kept(text, "names", _parse) == _parse(text)
    assert not cache.exists()


def test_short_texts_are_left_alone_and_a_folder_that_cannot_be_made_is_no_error(cache: Path) -> None:
    assert shipped_yaml._kept("a: 1", "names", _parse) == {"a": 1}
    assert not cache.exists()
    cache.parent.mkdir()
    cache.write_text("in the way")
    text = "a: 1\n" + "#" * shipped_yaml._LARGE_BYTES
    assert shipped_yaml._kept(text, "names", _parse) == {"a": 1}

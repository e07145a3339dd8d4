"""What is kept between two looks, and how two nodectl at once do not lose it."""

import json
import multiprocessing
from pathlib import Path

import pytest

from nodectl.checks.counters import Previous
from nodectl.health.history import StateFile


def state(time: float, boot: str = "boot1", **counters: int) -> Previous:
    return Previous(time, boot, counters)


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = StateFile(tmp_path, "/etc/hosts.yml")
    states = {"n1": state(1000.0, a=1, b=2), "n2": state(1001.0, a=3, b=4), "n3": state(1002.0, c=5)}
    kept.write(states)
    assert kept.read() == states
    assert len(json.loads(kept.path.read_text())["names"]) == 2, "names of counters are written once a kind of host"
    assert StateFile(tmp_path, "/etc/other.yml").read() == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99}', '{"version": 2, "names": [], "hosts": {"n": {}}}'])
def test_a_spoiled_file_is_a_first_look(tmp_path: Path, text: str) -> None:
    kept = StateFile(tmp_path, "f")
    kept.path.write_text(text)
    assert kept.read() == {}
    kept.write({"n1": state(1.0, a=1)})
    assert set(kept.read()) == {"n1"}


def _write(folder: Path, name: str) -> None:
    for n in range(20):
        StateFile(folder, "f").write({f"{name}{n}": state(1.0, a=n)})


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=_write, args=(tmp_path, name)) for name in ("a", "b")]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert set(StateFile(tmp_path, "f").read()) == {f"{name}{n}" for name in "ab" for n in range(20)}
    assert not list(tmp_path.glob(".*")), "no staged file is left"

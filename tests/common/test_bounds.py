"""What others wrote is refused where it has no bounds, before anything is shown, compared or copied."""

import time
from collections.abc import Callable

import pytest
import yaml

from nodectl.common import bounded_json, bounded_yaml
from nodectl.common.process import ImpatienceError, patience


@pytest.mark.parametrize("depth", [65, 900, 100_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_json_nested_without_end_is_refused(depth: int, opens: str, closes: str) -> None:
    with pytest.raises(ValueError, match="nested deeper than 64"):
        bounded_json.loads(opens * depth + "1" + closes * depth)


def test_json_as_tools_print_it_is_read() -> None:
    assert bounded_json.loads('[{"a": [1, {"b": null}]}, "[[[["]') == [{"a": [1, {"b": None}]}, "[[[["]
    with pytest.raises(ValueError, match="Expecting"):
        bounded_json.loads("[1,")


def bomb(levels: int) -> bytes:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (bomb(9), "aliases stand for"),
        (b"a: &a [*a]", "stands for itself"),
        (b"[" * 1000 + b"]" * 1000, "nested deeper"),
        (b"- x\n" * 300_000, "larger than 1024 KiB"),
    ],
)
def test_yaml_without_bounds_is_refused_at_once(content: bytes, why: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=why):
        bounded_yaml.load(content)
    assert time.process_time() - began < 5


def test_yaml_with_a_few_aliases_is_read() -> None:
    assert bounded_yaml.load(b"a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n")["b"] == {"x": 1, "y": 2}
    with pytest.raises(yaml.YAMLError):
        bounded_yaml.load(b"a: [")


def test_patience_ends_and_ends_again() -> None:
    losses = 0
    with patience(0.2, left=0.1):
        for _ in range(2):
            try:
                while True:
                    pass
            except ImpatienceError:
                losses += 1
    assert losses == 2


@pytest.mark.parametrize("read", [lambda text: bounded_json.loads(text), lambda text: bounded_yaml.load(text.encode())])
def test_a_number_without_end_is_refused_in_our_words(read: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match=r"^a number of more than 4,300 digits$"):
        read(f'{{"exit_status": {"1" * 5000}}}')
    with pytest.raises((ValueError, yaml.YAMLError)) as refused:
        read('{"exit_status": ')
    assert "digits" not in str(refused.value)

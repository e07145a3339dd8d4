"""What others wrote is refused where it has no bounds, before anything is shown, compared or copied."""

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

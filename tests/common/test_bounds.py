"""What others wrote is refused where it has no bounds, before anything is shown, compared or copied."""

import pytest
import yaml

from nodectl.common import bounded_json, bounded_yaml


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_json_nested_without_end_is_refused(opens: str, closes: str) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        bounded_json.loads(opens * 100_000 + "1" + closes * 100_000)


def test_json_as_tools_print_it_is_read() -> None:
    assert bounded_json.loads('[{"a": [1, {"b": null}]}, "[[[["]') == [{"a": [1, {"b": None}]}, "[[[["]
    with pytest.raises(ValueError, match="Expecting"):
        bounded_json.loads("[1,")


def test_yaml_with_a_few_aliases_is_read() -> None:
    assert bounded_yaml.load(b"a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: [*a, *a]\n")["b"] == {"x": 1, "y": 2}
    with pytest.raises(yaml.YAMLError):
        bounded_yaml.load(b"a: [")

"""A host's answer to preflight as text: read whole, or refused with the place."""

import json
from dataclasses import fields
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.model.preflight import NodeInfo
from nodectl.parsers.linux.preflight import parse_preflight


def answer(**changes: Any) -> str:
    node: dict[str, Any] = {field.name: field.name for field in fields(NodeInfo)}
    node |= {"free_ports": [1, 2], "peers": {"x": ["10.0.0.1"], "y": None}, **changes}
    return json.dumps({"clock": 1.5}) + "\n" + json.dumps({"node": node}) + "\n"


def test_every_field_is_read() -> None:
    node = parse_preflight(answer(), "gpu01", 0.25)
    assert (node.host, node.clock_offset_s, node.free_ports) == ("gpu01", 0.25, (1, 2))
    assert node.peers == {"x": ("10.0.0.1",), "y": None}
    plain = {field.name for field in fields(NodeInfo)} - {"host", "clock_offset_s", "free_ports", "peers"}
    assert all(getattr(node, name) == name for name in plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no node"),
        ('{"clock": 1}\n', "no node"),
        ('{"clock": 1}\nTraceback: x\n', "line 2: 'Traceback: x'"),
        ('{"node": {"hostname": "a"}}', "gpu01 lacks address"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_preflight(text, "gpu01", None)

"""`lldpctl -f json` and `-f json0`: neighbours in every shape that lldpd gives its lists."""

import json
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.lldp import Lldp, LldpNeighbor, parse_lldp

LEAF: dict[str, Any] = {
    "id": {"type": "mac", "value": "02:00:5e:00:53:01"},
    "descr": "Cumulus Linux version 5.9",
    "mgmt-ip": ["192.0.2.11", "2001:db8::11"],
    "capability": [{"type": "Bridge", "enabled": True}, {"type": "Router", "enabled": True}],
}
PORT: dict[str, Any] = {
    "id": {"type": "ifname", "value": "swp7"},
    "descr": "to gpu01 eth2",
    "ttl": "120",
    "auto-negotiation": {"supported": True, "enabled": True, "current": "25GBaseCR - 25GbE over one lane"},
}
READ = LldpNeighbor("eth2", "leaf1", "02:00:5e:00:53:01", "swp7", "to gpu01 eth2", True, 25.0)


def interface(chassis: object, port: object = PORT) -> dict[str, object]:
    return {"via": "LLDP", "rid": "1", "age": "0 day, 01:02:03", "chassis": chassis, "port": port}


JSON0 = {
    "lldp": [
        {
            "interface": [
                {
                    "name": "eth2",
                    "via": "LLDP",
                    "chassis": [
                        {
                            "id": [{"type": "mac", "value": "02:00:5e:00:53:01"}],
                            "name": [{"value": "leaf1"}],
                            "capability": [{"type": "Bridge", "enabled": True}],
                        }
                    ],
                    "port": [
                        {
                            "id": [{"type": "ifname", "value": "swp7"}],
                            "descr": [{"value": "to gpu01 eth2"}],
                            "auto-negotiation": [{"supported": True, "current": [{"value": "25GBaseCR - 25GbE"}]}],
                        }
                    ],
                }
            ]
        }
    ]
}


@pytest.mark.parametrize(
    ("document", "neighbors"),
    [
        ({"lldp": {"interface": [{"eth2": interface({"leaf1": LEAF})}]}}, (READ,)),
        # one interface alone is no list
        ({"lldp": {"interface": {"eth2": interface({"leaf1": LEAF})}}}, (READ,)),
        (JSON0, (READ,)),
        # two neighbours on one interface
        (
            {"lldp": {"interface": [{"eth2": interface({"leaf1": LEAF})}, {"eth2": interface({"leaf2": LEAF})}]}},
            (READ, LldpNeighbor("eth2", "leaf2", READ.chassis_id, "swp7", "to gpu01 eth2", True, 25.0)),
        ),
        # a chassis without a name is known by its id; one without capabilities says nothing of them
        (
            {"lldp": {"interface": {"eth2": interface({"id": {"type": "mac", "value": "02:00:5e:00:53:09"}}, {})}}},
            (LldpNeighbor("eth2", "02:00:5e:00:53:09", "02:00:5e:00:53:09", None),),
        ),
        (
            {
                "lldp": {
                    "interface": {
                        "eth2": interface({"h": {**LEAF, "capability": {"type": "Station", "enabled": True}}}, {})
                    }
                }
            },
            (LldpNeighbor("eth2", "h", READ.chassis_id, None, forwards=False),),
        ),
        ({"lldp": {}}, ()),
        ({"lldp": {"interface": []}}, ()),
    ],
)
def test_neighbours(document: object, neighbors: tuple[LldpNeighbor, ...]) -> None:
    assert parse_lldp(json.dumps(document)) == Lldp(neighbors)


def test_a_prompt_before_it_is_passed_over() -> None:
    text = json.dumps({"lldp": {"interface": {"eth2": interface({"leaf1": LEAF})}}}, indent=2)
    assert parse_lldp(f"$ lldpctl -f json\n{text}\n") == Lldp((READ,))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("lldpctl: unable to connect to socket /run/lldpd.socket", "unable to connect"),
        ('{"lldp": {"interface": [', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "no 'lldp'"),
        ('{"lldp": 3}', "lldp"),
        ('{"lldp": {"interface": [3]}}', "interface"),
        ('{"lldp": {"interface": {"eth0": 3}}}', "eth0"),
        ('{"lldp": {"interface": {"eth0": {"chassis": 7}}}}', "chassis"),
        ('{"lldp": {"interface": {"eth0": {}}}}', "eth0"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(ParseError, match="lldpctl") as caught:
        parse_lldp(text)
    assert said in caught.value.message

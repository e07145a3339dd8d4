"""Scenarios on a live fleet of 8: who is slow is named, and nobody else; none is named where nothing is wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("lab_machine")]

_HOSTS = 8
_RATE_MBIT = 100
_KINDS = ("none", "out", "in", "path", "direction", "two")
# slow-link's own rate is half of the links'
_SLOW_MBIT = (20, 35, 50, 70)
Culprit = tuple[str, frozenset[str]]


@dataclass(frozen=True)
class Fleet:
    """A lab whose links can be slowed down, each host's way out by tc in it."""

    cli: Cli
    inventory: str
    addresses: dict[str, str]

    def slow_out(self, host: str, to: list[str], mbit: int) -> None:
        """What the host sends to these, together; its answers to the operator are left alone."""
        base = "tc filter add dev eth0 parent 1: protocol ip prio 1 u32"
        filters = [f"{base} match ip dst {self.addresses[each]}/32 flowid 1:20" for each in to]
        self.run(
            host,
            "tc qdisc add dev eth0 root handle 1: htb default 10",
            "tc class add dev eth0 parent 1: classid 1:10 htb rate 10gbit quantum 60000",
            f"tc class add dev eth0 parent 1: classid 1:20 htb rate {mbit}mbit ceil {mbit}mbit burst 64k quantum 60000",
            "tc qdisc add dev eth0 parent 1:20 handle 20: bfifo limit 500000",
            *filters,
        )

    def run(self, host: str, *commands: str) -> None:
        self.cli("-i", self.inventory, "-l", host, "exec", "--", "sh", "-c", " && ".join(commands))

    def heal(self) -> None:
        self.cli("-i", self.inventory, "exec", "--", "sh", "-c", "tc qdisc del dev eth0 root 2>/dev/null; true")
        self.cli("lab", "heal", "--name", "blame")

    def blamed(self) -> set[Culprit]:
        """(kind, hosts) of each finding that blames somebody."""
        args = ("-i", self.inventory, "--output", "json", "probe", "tcp", "--duration", "1", "--repetitions", "1")
        found: list[dict[str, Any]] = json.loads(self.cli(*args, check=False, timeout=300).stdout)["findings"]
        return {(each["kind"], frozenset(each["hosts"])) for each in found if each["kind"]}


@pytest.fixture(scope="module")
def fleet(cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    home = tmp_path_factory.mktemp("blame")
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(home)})
    with cli.lab("blame", _HOSTS, "--rate", f"{_RATE_MBIT}mbit") as lab:
        yield Fleet(cli, lab.inventory, {host["name"]: host["address"] for host in lab.status["hosts"]})


@pytest.mark.parametrize("seed", range(30))
def test_random_scenarios(fleet: Fleet, seed: int) -> None:
    draw = random.Random(seed)
    kind = _KINDS[seed % len(_KINDS)]
    kinds = draw.sample(_KINDS[1:-1], 2) if kind == "two" else [kind] if kind != "none" else []
    names = draw.sample(sorted(fleet.addresses), _HOSTS)
    expected: set[Culprit] = set()
    try:
        for each in kinds:
            expected.add(_happen(fleet, each, names, draw.choice(_SLOW_MBIT)))
        assert fleet.blamed() == expected, kinds
    finally:
        fleet.heal()


def _happen(fleet: Fleet, kind: str, names: list[str], mbit: int) -> Culprit:
    """One fault, on hosts that have none; whom to blame for it."""
    a, b = names.pop(), names.pop()
    everybody = sorted(fleet.addresses)
    if kind == "in":
        fleet.cli("lab", "fault", "slow-link", a, "--name", "blame")
    elif kind == "out":
        fleet.slow_out(a, [name for name in everybody if name != a], mbit)
    else:
        fleet.slow_out(a, [b], mbit)
        if kind == "path":
            fleet.slow_out(b, [a], mbit)
    return ("host", frozenset({a})) if kind in ("in", "out") else (kind, frozenset({a, b}))

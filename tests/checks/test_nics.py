"""Ethernet interfaces: links, rates, errors, bonds, firmware."""

from typing import Any

from nodectl.checks.network import nics
from nodectl.facts.network import Nic
from tests.checks.table import UNREAD, Case, found, plain

TWO = {"nodectl_nics": ["ens1", "ens2"]}
ETHERNET = plain(nics=[{"count": 2, "rate_gbit": 100, "kind": "ethernet"}])


def nic(name: str, **changes: Any) -> Nic:
    values: dict[str, Any] = {
        "state": "up",
        "mtu": 9000,
        "mac": "0c:42:a1:00:00:01",
        "addresses": (),
        "speed_mbit": 100_000,
        "driver": "mlx5_core",
        "carrier": True,
        "firmware": "16.35.2000 (MT_0000000012)",
        "counters": {"rx_errors": 5, "rx_dropped": 50, "tx_carrier_changes": 2},
    }
    return Nic(name, **{**values, **changes})


def host(*interfaces: Nic) -> dict[str, object]:
    return {"nics": {each.name: each for each in interfaces}}


def pair(**changes: Any) -> dict[str, object]:
    return host(nic("ens1"), nic("ens2", **changes))


def bond(**changes: Any) -> dict[str, object]:
    made = nic("bond0", driver=None, kind="bond", bond_mode="802.3ad", counters={})
    return host(made, nic("ens1", master="bond0"), nic("ens2", **{"master": "bond0", **changes}))


NOT_TOLD: dict[str, object] = {"nics": UNREAD}
BEFORE = {"nic.ens2.rx_errors": 5, "nic.ens2.rx_dropped": 50, "nic.ens2.carrier_changes": 2}
CASES = [
    Case("nic_link", "ok", pair(), variables=TWO),
    Case("nic_link", "failed", pair(carrier=False, state="down"), variables=TWO, subject="ens2"),
    Case("nic_link", "failed", pair(carrier=False), variables=TWO, subject="ens2"),
    Case("nic_link", "failed", host(nic("ens1")), variables=TWO, subject="ens2"),
    Case("nic_link", "unknown", NOT_TOLD, variables=TWO, subject=""),
    Case("nic_link", "nothing", pair(state="down")),
    Case("nic_count", "ok", pair(), ETHERNET),
    Case("nic_count", "failed", pair(speed_mbit=10_000), ETHERNET),
    Case("nic_count", "unknown", pair(speed_mbit=None), ETHERNET),
    Case("nic_count", "failed", NOT_TOLD, ETHERNET),
    Case("nic_rate", "ok", pair(), variables=TWO),
    Case("nic_rate", "failed", pair(speed_mbit=25_000), variables=TWO, subject="ens2"),
    Case("nic_rate", "unknown", NOT_TOLD, variables=TWO),
    Case("nic_errors", "ok", pair()),
    Case("nic_errors", "warning", pair(counters={"rx_errors": 1000})),
    Case("nic_errors", "ok", pair(), before=BEFORE),
    Case("nic_errors", "warning", pair(counters={"rx_errors": 6}), before=BEFORE, subject="ens2 rx_errors"),
    Case("nic_errors", "ok", pair(counters={"rx_errors": 4}), before=BEFORE),
    Case("nic_flaps", "ok", pair(counters={"tx_carrier_changes": 100})),
    Case("nic_flaps", "ok", pair(counters={"tx_carrier_changes": 6}), before=BEFORE),
    Case("nic_flaps", "warning", pair(counters={"tx_carrier_changes": 8}), before=BEFORE, subject="ens2"),
    Case("nic_flaps", "failed", pair(counters={"tx_carrier_changes": 8}), variables=TWO, before=BEFORE, action="drain"),
    Case("bond", "ok", bond()),
    Case("bond", "warning", bond(carrier=False, state="down", speed_mbit=None)),
    Case("bond", "warning", bond(speed_mbit=10_000)),
    Case("bond", "warning", bond(master=None)),
    Case("bond", "nothing", pair()),
]


def test_the_ends_of_containers_are_nobodys_devices() -> None:
    veth = nic("veth1", driver=None, kind="veth", counters={"rx_errors": 10**6})
    assert {each.status.value for each in found(nics, Case("", "", host(nic("ens1"), veth)))} == {"ok"}

"""The hosts of a job in the order of their ranks."""

from nodectl.model.host import Host
from nodectl.topology.fabric.judge import in_rank_order

HOSTS = [Host(name, name) for name in ("node017", "node002", "elsewhere", "node018", "node001")]


def names(hosts: tuple[Host, ...]) -> list[str]:
    return [host.name for host in hosts]


def test_hosts_of_a_switch_come_together_and_none_is_lost() -> None:
    switches = {"node017": "leaf2", "node018": "leaf2", "node001": "leaf1", "node002": "leaf1"}
    hosts = [
        Host(
            host.name, host.address, variables={"nodectl_switch": switches[host.name]} if host.name in switches else {}
        )
        for host in HOSTS
    ]
    assert names(in_rank_order(hosts)) == ["node001", "node002", "node017", "node018", "elsewhere"]
    assert in_rank_order(HOSTS) == tuple(HOSTS)

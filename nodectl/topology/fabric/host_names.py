"""Names in a fabric and names in an inventory: the same host may be `gpu01` here and `gpu01.cluster.example` there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.model.host import Host


class HostNames:
    """Finds the inventory's host for a name that a fabric uses; every name is a host where there is no inventory."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.everybody = not hosts
        self._exact = {name.lower(): host.name for host in reversed(hosts) for name in (host.address, host.name)}
        self._short = _unique({host.name: _short(host.name) for host in hosts})

    def find(self, name: str) -> str | None:
        """The inventory's name of it; None where it is none of the hosts."""
        if self.everybody:
            return name
        return self._exact.get(name.lower()) or self._short.get(_short(name))


def _short(name: str) -> str:
    # an address has no short form
    return name.lower() if name.replace(".", "").isdigit() else name.lower().split(".")[0]


def _unique(shorts: Mapping[str, str]) -> dict[str, str]:
    listed = list(shorts.values())
    return {short: name for name, short in shorts.items() if listed.count(short) == 1}

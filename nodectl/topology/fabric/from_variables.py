"""The fabric's graph from host variables: nodectl_switch names a host's switches, nodectl_rail its rails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.common.counting import counted
from nodectl.errors import InventoryError
from nodectl.model.host import Host
from nodectl.model.topology import Attachment, FabricGraph, Switch

_FORM = "a switch's name, a list of names, or a mapping from NIC to name"


def variables_graph(hosts: Sequence[Host]) -> FabricGraph | None:
    """The graph that nodectl_switch and nodectl_rail describe; None where no host has them."""
    attachments = [attachment for host in hosts for attachment in _attachments(host)]
    if not attachments:
        return None
    switches = dict.fromkeys(attachment.switch for attachment in attachments)
    seen = dict.fromkeys(attachment.host for attachment in attachments)
    return FabricGraph(
        source="nodectl_switch",
        switches=tuple(Switch(name, name) for name in switches),
        attachments=tuple(attachments),
        hosts=tuple(seen),
        missing=tuple(host.name for host in hosts if host.name not in seen),
        trunks_known=len(switches) < 2,
    )


def _attachments(host: Host) -> list[Attachment]:
    ports = _named(host, "nodectl_switch")
    rails = host.variables.get("nodectl_rail")
    by_nic = _named(host, "nodectl_rail") if isinstance(rails, dict) else {}
    listed = rails if isinstance(rails, list) else [rails] * len(ports)
    if len(listed) != len(ports):
        raise InventoryError(
            f"host {host.name}: nodectl_rail names {counted(len(listed), 'rail')} for {counted(len(ports), 'switch')}",
            "name one rail for each entry of nodectl_switch, or a mapping from NIC to rail",
        )
    return [
        Attachment(host.name, nic, switch, rail=by_nic.get(nic, "") if by_nic else _text(rail))
        for (nic, switch), rail in zip(ports.items(), listed, strict=True)
    ]


def _named(host: Host, variable: str) -> dict[str, str]:
    """NIC → name; a NIC that the inventory does not name is called by its place."""
    value = host.variables.get(variable)
    if value is None or value == "":
        return {}
    if isinstance(value, Mapping):
        entries = {str(nic): name for nic, name in value.items()}
    else:
        entries = {f"nic{number}": name for number, name in enumerate(value if isinstance(value, list) else [value])}
    for name in entries.values():
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise InventoryError(f"host {host.name}: {variable}: {value!r} is not {_FORM}", "correct the variable")
    return {nic: str(name) for nic, name in entries.items()}


def _text(rail: object) -> str:
    return "" if rail is None else str(rail)

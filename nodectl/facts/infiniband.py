"""RDMA ports and their GIDs: sysfs tells most in one look, and what else is in a recording fills the rest."""

import re
from collections.abc import Callable
from dataclasses import replace

from nodectl.common.natural import natural
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, output_unless_missing, parse, told
from nodectl.facts.ib_sysfs import NO_DEVICE, SCRIPT, Device, port_of, read_sysfs, word
from nodectl.model.network import Gid, IbPort
from nodectl.model.recording import Command, Recording

_MAPPED = "0000:0000:0000:0000:0000:ffff:"
_COMMANDS = (
    Command("ib-sysfs", ("sh", "-c", SCRIPT), hardware=True),
    Command("ibstat", ("ibstat",), hardware=True),
    Command("ibv-devinfo", ("ibv_devinfo", "-v"), hardware=True),
    Command("rdma-link", ("rdma", "link"), hardware=True),
    Command("show-gids", ("show_gids",), hardware=True),
)
_Key = tuple[str, int]


def _ports(recording: Recording) -> tuple[IbPort, ...]:
    ports = _first(recording, (_from_sysfs, _from_ibstat, _from_ibstatus, _from_devinfo))
    for fill in (_mtus, _netdevs):
        try:
            more = fill(recording)
        except (AbsentError, UnknownError, ParseError):
            continue
        ports = {key: more(key, port) for key, port in ports.items()}
    return tuple(ports[key] for key in sorted(ports, key=lambda key: (natural(key[0]), key[1])))


def _first(recording: Recording, ways: tuple[Callable[[Recording], dict[_Key, IbPort]], ...]) -> dict[_Key, IbPort]:
    """What the first of them tells that can; else why the first could not: absent only where none could look."""
    reasons: list[Exception] = []
    for way in ways:
        try:
            return way(recording)
        except (AbsentError, UnknownError, ParseError) as error:
            reasons.append(error)
            if isinstance(error, AbsentError) and way is _from_sysfs:
                break  # the kernel has none: no tool can show any
    said = [each for each in reasons if "is not in the recording" not in str(each)]
    raise (said or reasons)[0]


def _sysfs(recording: Recording) -> dict[str, Device]:
    return parse(read_sysfs, output_unless_missing(recording, "ib-sysfs", NO_DEVICE))


def _from_sysfs(recording: Recording) -> dict[_Key, IbPort]:
    devices = _sysfs(recording)
    return {(name, port): port_of(name, port, device) for name, device in devices.items() for port in device.ports}


def _from_ibstat(recording: Recording) -> dict[_Key, IbPort]:
    return {
        (adapter.name, port.port): IbPort(
            device=adapter.name,
            port=port.port,
            # the kernel's word, as sysfs has it
            state=_upper(port.state),
            physical_state=port.physical_state,
            rate_gbit_s=port.rate_gbit_s,
            link_layer=port.link_layer,
            lid=port.lid,
            guid=port.guid,
            firmware=adapter.firmware,
            type=adapter.type,
        )
        for adapter in told(recording, "ibstat").adapters
        for port in adapter.ports
    }


def _from_ibstatus(recording: Recording) -> dict[_Key, IbPort]:
    return {
        (port.device, port.port): IbPort(
            device=port.device,
            port=port.port,
            state=_upper(word(port.state)),
            physical_state=word(port.physical_state),
            rate_gbit_s=port.rate_gbit_s,
            rate_text=port.rate_text,
            link_layer=port.link_layer,
        )
        for port in told(recording, "ibstatus").ports
    }


def _from_devinfo(recording: Recording) -> dict[_Key, IbPort]:
    return {
        (device.name, port.port): IbPort(
            device=device.name,
            port=port.port,
            state=_upper((port.state or "").removeprefix("PORT_").partition(" ")[0]) or None,
            link_layer=port.link_layer,
            guid=device.node_guid,
            firmware=device.firmware,
            board_id=device.board_id,
        )
        for device in told(recording, "ibv-devinfo").devices
        for port in device.ports
    }


def _upper(text: str | None) -> str | None:
    """`Initializing` of ibstat is INIT in sysfs."""
    return None if text is None else "INIT" if text.lower().startswith("init") else text.upper()


def _mtus(recording: Recording) -> Callable[[_Key, IbPort], IbPort]:
    found = {
        (device.name, port.port): port for device in told(recording, "ibv-devinfo").devices for port in device.ports
    }

    def fill(key: _Key, port: IbPort) -> IbPort:
        verbs = found.get(key)
        return port if verbs is None else replace(port, mtu_active=verbs.active_mtu_bytes, mtu_max=verbs.max_mtu_bytes)

    return fill


def _netdevs(recording: Recording) -> Callable[[_Key, IbPort], IbPort]:
    found = {(link.device, link.port): link.netdev for link in told(recording, "rdma-link").links}
    return lambda key, port: port if port.netdev else replace(port, netdev=found.get(key))


def _gids(recording: Recording) -> tuple[Gid, ...]:
    try:
        devices = _sysfs(recording)
    except UnknownError:
        shown = told(recording, "show-gids").gids
        return tuple(Gid(g.device, g.port, g.index, g.gid, g.version, g.netdev, g.ipv4) for g in shown)
    return tuple(
        _gid(name, port, int(path[5:]), files)
        for name in sorted(devices, key=natural)
        for port, files in sorted(devices[name].ports.items())
        for path in sorted(files, key=lambda each: (len(each), each))
        if path.startswith("gids/") and path[5:].isdigit()
    )


def _gid(name: str, port: int, index: int, files: dict[str, str]) -> Gid:
    gid, netdev = files[f"gids/{index}"], files.get(f"gid_attrs/ndevs/{index}")
    kind = files.get(f"gid_attrs/types/{index}", "")
    version = None if files.get("link_layer") == "InfiniBand" else "v2" if kind == "RoCE v2" else "v1" if kind else None
    return Gid(name, port, index, gid, version, netdev, _ipv4(gid))


def _ipv4(gid: str) -> str | None:
    """The address that a GID of IPv4 carries in its last four bytes."""
    if not gid.startswith(_MAPPED) or not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", gid[len(_MAPPED) :]):
        return None
    digits = gid[len(_MAPPED) :].replace(":", "")
    return ".".join(str(int(digits[i : i + 2], 16)) for i in range(0, 8, 2))


PORTS = Fact("ib_ports", lambda venv: _COMMANDS, _ports)
GIDS = Fact("gids", lambda venv: _COMMANDS, _gids)

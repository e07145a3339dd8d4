"""Which kernel and systemd-networkd messages say that the link of a NIC or an InfiniBand port went up or down."""

from __future__ import annotations

import re
from typing import NamedTuple

_DOWN = r"(?P<down>down|DOWN|Down)"
_UP = r"(?P<up>up|UP|Up|ACTIVE|Active|active)"
_PORT = re.compile(  # mlx5_core 0000:12:00.0 mlx5_0: Port: 1 Link DOWN
    r"(?:(?P<device>[\w-]{2,40}): )?Port:? (?P<port>\d{1,3})(?: logical)? [Ll]ink (?:is )?"
    rf"(?:{_DOWN}|{_UP}|(?P<other>INIT|ARMED))\b"
)
_INTERFACE = re.compile(
    r"(?:^|[\s(])(?P<device>[A-Za-z][\w.@-]{0,40})"
    r"(?:\)?: (?:\(slave (?P<slave>[\w.@-]{1,40})\): )?(?:NIC )?| NIC )"
    r"[Ll]ink (?:is |status definitely |status )?"
    rf"(?:{_DOWN}|{_UP})\b(?: for interface (?P<member>[\w.@-]{{1,40}}))?"
)
_CARRIER = re.compile(
    r"(?:^|\s)(?P<device>[A-Za-z][\w.@-]{0,40}): "
    r"(?:(?P<down>[Ll]ost carrier|carrier lost)|(?P<up>[Gg]ained carrier|carrier acquired))"
)
# links of other things, and addresses' own readiness
_OTHER = re.compile(r"ADDRCONF|\bata\d|\bSATA\b|pciehp|NVLink|[Nn]vlink|nvswitch|\busb\b|[Ss]lot\(")
_INFINIBAND = re.compile(r"ib[a-z]{0,6}\d[\w.]*|mlx[45]_\d{1,3}|mlx[45]_ib\w*|hfi1_\d{1,3}|qib\d{1,3}")


class LinkChange(NamedTuple):
    """`kind` is ib_link or nic_link; `state` is up, down, or of an InfiniBand port also init, armed."""

    kind: str
    device: str
    state: str


def link_change(text: str) -> LinkChange | None:
    """None where the message is about no link, or not that of a network device."""
    if _OTHER.search(text):
        return None
    if match := _PORT.search(text):
        return LinkChange("ib_link", match["device"] or f"port {match['port']}", _state(match))
    match = _INTERFACE.search(text) or _CARRIER.search(text)
    if match is None:
        return None
    named = match.groupdict()
    device = named.get("slave") or named.get("member") or match["device"]
    return LinkChange("ib_link" if _INFINIBAND.fullmatch(device) else "nic_link", device, _state(match))


def _state(match: re.Match[str]) -> str:
    named = match.groupdict()
    return "down" if named["down"] else (named.get("other") or "up").lower()

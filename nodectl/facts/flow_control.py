"""What keeps RoCE from losing packets: priorities with pause frames (PFC), and congestion marks (ECN), by interface."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.facts.base import matches, script, text_fact

# NAME KIND VALUE a line, of interfaces that a RDMA device has
_SHOW = """\
cd /sys/class/infiniband 2>/dev/null || exit 3
set -- */device/net/*
[ -d "$1" ] || exit 3
for each; do
  name=${each##*/} on=
  [ "$(cat "/sys/class/net/$name/type" 2>/dev/null)" = 1 ] || continue
  if command -v dcb >/dev/null 2>&1; then
    pfc=$(dcb pfc show dev "$name" prio-pfc 2>/dev/null | tr -s ' \\n' ' ') && printf '%s\\tpfc\\t%s\\n' "$name" "$pfc"
  fi
  for side in roce_np roce_rp; do
    set -- "/sys/class/net/$name/ecn/$side/enable/"*
    [ -e "$1" ] && printf '%s\\t%s\\t%s\\n' "$name" "$side" "$(cat "$@" 2>/dev/null | tr -d '\\n')"
  done
done
exit 0
"""
_LINE = re.compile(r"(\S+)\t(pfc|roce_np|roce_rp)\t(.*)")
_ON = re.compile(r"\b([0-7]):on\b")


@dataclass(frozen=True, slots=True)
class InterfaceFlow:
    """Priorities with PFC; those with ECN as the one who is told (`notifies`) and the one who slows down (`reacts`).

    None where neither driver nor tool tells.
    """

    pfc: tuple[int, ...] | None = None
    notifies: tuple[int, ...] | None = None
    reacts: tuple[int, ...] | None = None

    def __str__(self) -> str:
        named = (("PFC", self.pfc), ("ECN notified", self.notifies), ("ECN reacting", self.reacts))
        return ", ".join(f"{name} {_numbers(values)}" for name, values in named if values is not None)


@dataclass(frozen=True, slots=True)
class FlowControl:
    """The Ethernet interfaces of RDMA devices by name."""

    interfaces: Mapping[str, InterfaceFlow]


def _numbers(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values)) or "off"


def _parse(text: str) -> FlowControl:
    rows: dict[str, dict[str, tuple[int, ...]]] = {}
    for match in matches(_LINE, text, "flow-control"):
        name, kind, value = match.groups()
        if kind == "pfc":
            on = tuple(int(number) for number in _ON.findall(value))
        else:
            on = tuple(number for number, bit in enumerate(value.strip()) if bit == "1")
        rows.setdefault(name, {})[kind] = on
    return FlowControl(
        {
            name: InterfaceFlow(row.get("pfc"), row.get("roce_np"), row.get("roce_rp"))
            for name, row in sorted(rows.items())
        }
    )


def _words(flow: FlowControl) -> str:
    return "; ".join(f"{name} {each}" for name, each in flow.interfaces.items()) or "no RoCE interface tells"


FACT = text_fact(
    "flow_control",
    script("flow-control", _SHOW, hardware=True),
    _parse,
    _words,
    absent="no RDMA device has an interface",
    row=233,
)

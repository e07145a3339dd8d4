"""Which tools can be read, by the names that recordings and `nodectl parse` use; each parser is imported when used."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from nodectl.errors import ParseError

# tool: (module, function)
_PARSERS = {
    tool: (f"nodectl.parsers.{tool.replace('-', '_')}", f"parse_{tool.replace('-', '_')}")
    for tool in (
        "compute-apps",
        "dcgmi-diag",
        "dmesg",
        "fio",
        "ibnetdiscover",
        "ibstat",
        "ibstatus",
        "ibv-devinfo",
        "iperf3",
        "lspci-acs",
        "nccl-log",
        "nccl-tests",
        "ncclras",
        "nvbandwidth",
        "nvidia-smi-list",
        "nvidia-smi-nvlink",
        "nvidia-smi-p2p",
        "nvidia-smi-q",
        "nvidia-smi-query",
        "nvidia-smi-topo",
        "perfquery",
        "perftest",
        "rdma-link",
        "show-gids",
        "torchrun-log",
    )
}
TOOLS = tuple(_PARSERS)


def parser_of(tool: str) -> Callable[[str], object]:
    """The pure function that reads `tool`'s text into a frozen dataclass, or raises ParseError; KeyError if unknown.

    It also reads what the module's own function refuses because something stands before each of its lines.
    """
    module, function = _PARSERS[tool]
    parse: Callable[[str], object] = getattr(importlib.import_module(module), function)

    def parse_any(text: str) -> object:
        try:
            return parse(text)
        except ParseError as error:
            from nodectl.parsers.prefixes import readings

            for other in readings(text):
                try:
                    return parse(other)
                except ParseError:
                    continue
            raise error from None

    return parse_any

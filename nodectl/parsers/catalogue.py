"""Which tools can be read, by the names that recordings and `nodectl parse` use; each parser is imported when used."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from nodectl.errors import ParseError

_FOLDERS = {
    "linux": ("dmesg", "fio", "iperf3", "lspci-acs"),
    "nccl": ("nccl-log", "nccl-tests", "ncclras", "torchrun-log"),
    "nvidia": (
        *("compute-apps", "dcgmi-diag", "nvbandwidth", "nvidia-smi-list", "nvidia-smi-nvlink", "nvidia-smi-p2p"),
        *("nvidia-smi-q", "nvidia-smi-query", "nvidia-smi-topo"),
    ),
    "rdma": (
        *("ibnetdiscover", "ibstat", "ibstatus", "ibv-devinfo", "perfquery", "perftest", "rdma-link", "show-gids"),
    ),
}
# tool: (module, function)
_PARSERS = {
    tool: (
        f"nodectl.parsers.{folder}.{tool.removeprefix('nvidia-').replace('-', '_')}",
        f"parse_{tool.replace('-', '_')}",
    )
    for tool, folder in sorted((tool, folder) for folder, tools in _FOLDERS.items() for tool in tools)
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

"""Classes of links between GPUs and NICs, as `nvidia-smi topo -m` names them, the closest first."""

from __future__ import annotations

from collections.abc import Mapping

# below one PCIe switch or root port: traffic between the two does not pass the CPU
NEAR = ("PIX", "PXB")
FAR_SOCKET = "SYS"
_ORDER = ("PIX", "PXB", "PHB", "NODE", "SYS")
_MEANING = {
    "PIX": "one PCIe bridge away",
    "PXB": "some PCIe bridges away, without passing the CPU",
    "PHB": "across the CPU's host bridge",
    "NODE": "across host bridges of one NUMA node",
    "SYS": "across the link between sockets",
}


def closeness(link: str) -> int:
    """0 is the closest; NVLink closer than any PCIe; what is not known is farthest."""
    if link.startswith("NV"):
        return -1
    return _ORDER.index(link) if link in _ORDER else len(_ORDER)


def meaning(link: str) -> str:
    """Return the class of link in words, for people."""
    return _MEANING.get(link, "a link of unknown kind")


def between(links: Mapping[str, Mapping[str, str]], a: str, b: str) -> str:
    """Return the class between two, whichever of them has a row; empty where the matrix does not say."""
    return links.get(a, {}).get(b) or links.get(b, {}).get(a) or ""

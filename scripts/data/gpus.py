"""Make nodectl/data/gpus/products.yml: which GPU has which PCI device ids, and what it can compute.

    python -m scripts.data.gpus README.md pci.ids

README.md is that of NVIDIA/open-gpu-kernel-modules, whose table names products from Turing on as the driver does;
pci.ids names those before (Maxwell, Pascal, Volta), by the words of the list. Of an id that several products have, told
apart by their subsystem, all are named. What neither list has is named here, as older drivers' lists and outputs do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.data import write_rows

# the first digits of a device id tell the chip
_CAPABILITIES = {
    "102d": "3.7", "138": "5.0", "13b": "5.0", "13c": "5.2", "13f": "5.2", "140": "5.2", "142": "5.2", "143": "5.2",
    "17c": "5.2", "17f": "5.2", "15f": "6.0", "1b": "6.1", "1c": "6.1", "1d0": "6.1", "1d8": "7.0", "1db": "7.0",
    "1df": "7.0", "1e": "7.5", "1f": "7.5", "21": "7.5", "20": "8.0", "22": "8.6", "24": "8.6", "25": "8.6",
    "23": "9.0", "26": "8.9", "27": "8.9", "28": "8.9", "29": "10.0", "31": "10.3", "2b": "12.0", "2c": "12.0",
    "2d": "12.0", "2f": "12.0", "2e": "12.1",
}  # fmt: skip
_ROW = re.compile(r"^\| (.+?) +\| ([0-9A-F]{4})(?: [0-9A-F]{4} [0-9A-F]{4})? +\|$", re.MULTILINE)
_LISTED = re.compile(
    r"^\t([0-9a-f]{4})  G[KMPV]\d+(?:GL)? \[((?:GeForce G|Tesla|TITAN|Quadro|P10\d-).*)\]$", re.MULTILINE
)
_NO_CARD = re.compile(r"DRIVE|Matrox|Engineering|Embedded|FAKE|Tesla GV100")
_ALSO = (
    ("0x1db1", "Tesla V100-SXM2-16GB-LS"),
    ("0x1db5", "Tesla V100-SXM2-32GB-LS"),
    ("0x1db8", "Tesla V100-SXM3-32GB-H"),
    ("0x1eb4", "NVIDIA T4G"),
    ("0x20b3", "NVIDIA PG506-242"),
    ("0x20b3", "NVIDIA PG506-243"),
    ("0x20b6", "NVIDIA PG506-230"),
    ("0x20b8", "NVIDIA A100X"),
    ("0x20b9", "NVIDIA A30X"),
    ("0x20c2", "NVIDIA CMP 170HX"),
)


def of_readme(text: str) -> Iterator[tuple[str, str]]:
    """Yield (PCI device id, product) of the README's table."""
    for name, device in _ROW.findall(text):
        yield f"0x{device.lower()}", name


def of_list(text: str) -> Iterator[tuple[str, str]]:
    """Yield (PCI device id, product) of pci.ids, from Maxwell up to Volta, with names as the driver spells them."""
    ours = text.partition("\n10de  ")[2].partition("\n10df  ")[0]
    for device, name in _LISTED.findall(ours):
        if capability(f"0x{device}") in ("3.7", "5.0", "5.2", "6.0", "6.1", "7.0"):
            yield f"0x{device}", _spelt(name)


def capability(device: str) -> str:
    """Return the compute capability of a PCI device id; empty where its chip is not known."""
    digits = device.removeprefix("0x")
    return next((value for start, value in _CAPABILITIES.items() if digits.startswith(start)), "")


def _spelt(name: str) -> str:
    if name.startswith(("GeForce", "TITAN")):
        return f"NVIDIA {name.replace('TITAN X Pascal', 'TITAN X (Pascal)')}"
    name = re.sub(r"(Tesla [PV]100S?) (FHHL|DGXS) (\d+GB)", r"\1-\2-\3", name)
    return re.sub(r"(Tesla [PV]100S?) (PCI|SXM)([e\d]) (\d+GB)", lambda m: f"{m[1]}-{m[2]}{m[3].upper()}-{m[4]}", name)


def document(rows: Iterable[tuple[str, str]]) -> list[dict[str, object]]:
    """Return the products, each with its capability and ids, in the order of their ids."""
    products: dict[tuple[str, str], dict[str, None]] = {}
    for device, name in sorted(rows):
        if capability(device) and not _NO_CARD.search(name):
            products.setdefault((name, capability(device)), {})[device] = None
    return [{"name": name, "compute_capability": can, "ids": list(ids)} for (name, can), ids in products.items()]


def main() -> None:
    """Write the file's products; its head (source, read_on, valid_until) is kept, to be mended by hand."""
    readme, listed = (Path(argument).read_text(encoding="utf-8") for argument in sys.argv[1:])
    write_rows("gpus/products.yml", document([*of_readme(readme), *of_list(listed), *_ALSO]), "products")


if __name__ == "__main__":
    main()

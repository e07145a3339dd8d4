"""Hosts with any GPUs of the catalogue, composed: what nvidia-smi and lspci print there, over a bundled recording.

Nobody recorded these outputs: a bundled host's are made again with the names, PCI ids, memory and links of other cards.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodectl.errors import ProfileError
from nodectl.model.recording import Recording
from nodectl.profiles.gpus import capability_of, composed, model_of, products, products_of
from nodectl.recordings.folder import RecordedFleet, bundled, open_recording, read_host
from nodectl.recordings.save import write_host

_HOST = "node01"
# the stack of the bundled recordings has NVIDIA's open kernel modules: for this compute capability and later
_OPEN_FROM = 7.5
_MIB_A_GB, _KEPT_BY_THE_CARD_MIB = 1024, 12
_MOST_GPUS = 64
# GB/s of a link, as the driver prints it, by NVLink generation
_LINK_GB_S = {"Pascal": "19.531", "Volta": "25.781", "Turing": "25.781", "Ampere": "26.562", "Hopper": "26.562"}


_ARCHITECTURES = {"6": "Pascal", "7.0": "Volta", "7.5": "Turing", "8.9": "Ada Lovelace", "8": "Ampere", "9": "Hopper"}


@dataclass(frozen=True)
class Card:
    """A GPU as nvidia-smi names it, its PCI device id without 0x, and the memory that it prints (MiB)."""

    name: str
    id: str
    mib: int | None = None

    @property
    def architecture(self) -> str:
        """Return what nvidia-smi calls its generation."""
        can = next((row.compute_capability for row in products_of(f"0x{self.id}")), "")
        return next((name for digits, name in _ARCHITECTURES.items() if can.startswith(digits)), "Blackwell")

    @property
    def has_output(self) -> bool:
        """Return whether a display can be plugged in: PCI calls such cards VGA controllers."""
        return not re.search(r"Tesla|SXM|NVIDIA [ABHL]\d|GH200|GB\d00", self.name)


@dataclass(frozen=True)
class Box:
    """The cards of one machine in the order of their numbers, the matrix of `nvidia-smi topo -m`, places on the bus."""

    cards: tuple[Card, ...]
    links: tuple[tuple[str, ...], ...]
    slots: Sequence[int]
    switched: bool = False


def recording(box: Box) -> Recording:
    """Return a host that wears the box: a bundled recording's, with the outputs on GPUs made again."""
    name = "h100-8" if box.switched else "rtx4090-3"
    base = read_host(bundled()[name] / _HOST, _HOST, "")
    texts = {
        "nvidia-smi-q": _report(base, box),
        "nvidia-smi-query": _query(box),
        "nvidia-smi-list": "".join(
            f"GPU {number}: {card.name} (UUID: {_uuid(slot, card)})\n"
            for number, (slot, card) in enumerate(zip(box.slots, box.cards, strict=True))
        ),
        "nvidia-smi-topo": _topo(box.links),
        "nvidia-smi-p2p": _p2p(box),
        "nvidia-smi-nvlink": _nvlink(box, "GB/s"),
        "nvidia-smi-nvlink-errors": _nvlink(box, "errors"),
        "lspci-acs": _lspci(base, box),
        "pci-tree": _tree(base, box),
    }
    some = base.entries["nvidia-smi-q"]
    made = {key: replace(some, key=key, stdout=text) for key, text in texts.items()}
    # the base's Slurm knows the base's GPUs
    no_slurm = replace(base.entries["slurm-node"], stdout="", exit_status=127)
    return replace(base, entries={**base.entries, **made, "slurm-node": no_slurm})


def fleet_of(text: str, folder: Path) -> RecordedFleet:
    """Write into `folder` a host with the GPUs of a short form, as `4 x rtx4090`; ProfileError if that is none."""
    write_host(folder, replace(host_of(text), host=_HOST))
    fleet = open_recording(str(folder))
    profiles = {**open_recording("rtx4090-3").profiles, "hardware": text}
    if any(float(capability_of(group.model) or _OPEN_FROM) < _OPEN_FROM for group in composed(text).groups):
        profiles["stack"] = "none"
    return replace(fleet, name=f"{text} (composed of the catalogue, not recorded)", made="composed", profiles=profiles)


def host_of(text: str) -> Recording:
    """Return a host with the GPUs of a short form; ProfileError if it is none, or of more than 64 GPUs."""
    groups = composed(text).groups
    cards = tuple(_card(group.model, group.memory_gb) for group in groups for _ in range(group.gpus or 1))
    if len(cards) > _MOST_GPUS:
        raise ProfileError(f"hardware {text!r}: the lab composes hosts of at most {_MOST_GPUS} GPUs")
    model = model_of(groups[0].model) if len(groups) == 1 else None
    switched = len(cards) > 1 and model is not None and model.is_module
    word = f"NV{model.nvlink[1]}" if switched and model is not None and model.nvlink is not None else "SYS"
    places = range(len(cards))
    links = tuple(tuple("X" if row == column else word for column in places) for row in places)
    return recording(Box(cards, links, places, switched))


def _card(name: str, memory_gb: int | None) -> Card:
    device = next(row.ids[0] for row in products() if row.name == name)
    return Card(name, device[2:], None if memory_gb is None else memory_gb * _MIB_A_GB - _KEPT_BY_THE_CARD_MIB)


def _uuid(number: int, card: Card) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{card.name} {number}')}"


def _bus(number: int) -> str:
    return f"0001:{16 + 3 * number:02X}:00.0"


def _report(base: Recording, box: Box) -> str:
    text = base.entries["nvidia-smi-q"].stdout
    head, _, rest = text.partition("\nGPU 0000")
    block = "GPU 0000" + rest.split("\nGPU 0000")[0]
    word = "vGPUs" if any(re.search(r"-\d+[QC]$", card.name) for card in box.cards) else "GPUs"
    head = re.sub(r"Attached GPUs(\s+:) \d+", rf"Attached {word}\1 {len(box.cards)}", head)
    return (
        head + "".join(f"\n{_block(block, slot, card)}" for slot, card in zip(box.slots, box.cards, strict=True)) + "\n"
    )


def _block(block: str, number: int, card: Card) -> str:
    bus, memory = f"0000{_bus(number)}", f"{card.mib} MiB" if card.mib else "N/A"
    values = {
        "Product Name": card.name,
        "Product Brand": next((word for word in ("GeForce", "Quadro", "Tesla") if word in card.name), "NVIDIA"),
        "Product Architecture": card.architecture,
        "Serial Number": f"16509230{number:05}" if (not card.has_output) else "N/A",
        "GPU UUID": _uuid(number, card),
        "Minor Number": str(number),
        "Board ID": f"0x{bus[9:11].lower()}00",
        "Bus Id": bus,
        "Device Id": f"0x{card.id[2:].upper()}10DE",
    }
    for name, value in values.items():
        block = re.sub(rf"^(    |        )({name}\s+:) .*$", rf"\1\2 {value}", block, flags=re.MULTILINE)
    block = re.sub(r"^GPU \S+", f"GPU {bus}", block)
    free = f"{card.mib - 600} MiB" if card.mib else "N/A"
    block = re.sub(
        r"(    FB Memory Usage\n\s+Total\s+:) .*\n(\s+Reserved\s+:) .*\n(\s+Used\s+:) .*\n(\s+Free\s+:) .*",
        rf"\1 {memory}\n\2 {'596 MiB' if card.mib else 'N/A'}\n\3 {'4 MiB' if card.mib else 'N/A'}\n\4 {free}",
        block,
    )
    ecc = "Enabled" if (not card.has_output) else "N/A"
    block = re.sub(r"(    ECC Mode\n\s+Current\s+:) .*\n(\s+Pending\s+:) .*", rf"\1 {ecc}\n\2 {ecc}", block)
    if card.has_output:
        return block
    block = re.sub(r"(SRAM Threshold Exceeded +:) N/A", r"\1 No", block)
    return re.sub(r"([SD]RAM (?:Unc|C)orrectable.* :) N/A", r"\1 0", block)


def _query(box: Box) -> str:
    rows = ["index, name, uuid, pci.bus_id, memory.total [MiB], driver_version, vbios_version"]
    for number, (slot, card) in enumerate(zip(box.slots, box.cards, strict=True)):
        memory = f"{card.mib} MiB" if card.mib else "[N/A]"
        rows.append(
            f"{number}, {card.name}, {_uuid(slot, card)}, 0000{_bus(slot)}, {memory}, 580.95.05, 95.02.3C.00.02"
        )
    return "\n".join(rows) + "\n"


def _topo(links: Sequence[Sequence[str]]) -> str:
    names = [f"GPU{number}" for number in range(len(links))]
    head = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    rows = (
        "\t".join([name, *(f" {word} " if word == "X" else word for word in row), "0-31", "0", "", "N/A"])
        for name, row in zip(names, links, strict=True)
    )
    return "\n".join([head, *rows]) + "\n\nLegend:\n\n  X    = Self\n"


def _p2p(box: Box) -> str:
    names = [f"GPU{number}" for number in range(len(box.cards))]
    # no card of another kind is a peer of a GeForce
    consumer = any("GeForce" in card.name for card in box.cards)
    rows = [" \t" + "\t".join(names)]
    for name, row in zip(names, box.links, strict=True):
        words = ["X" if word == "X" else "CNS" if consumer and not word.startswith("NV") else "OK" for word in row]
        rows.append("\t".join([f" {name}", *words]))
    return "\n".join(rows) + "\n"


def _nvlink(box: Box, what: str) -> str:
    lines = []
    for number, (slot, card, row) in enumerate(zip(box.slots, box.cards, box.links, strict=True)):
        counts = [int(word[2:]) for word in row if word.startswith("NV")]
        links = (max(counts) if box.switched else sum(counts)) if counts else 0
        model = model_of(card.name)
        built = model.nvlink[1] if model and model.nvlink else links
        lines.append(f"GPU {number}: {card.name} (UUID: {_uuid(slot, card)})")
        if not links:
            idle = "NVML: Unable to retrieve NVLink information as all links are inActive"
            lines.append(idle if built else "Device does not have or support Nvlink")
        for link in range(built if links else 0):
            if what == "errors":
                lines += [f"\t Link {link}: {kind} Errors: 0" for kind in ("Replay", "Recovery", "CRC")]
            else:
                rate = f"{_LINK_GB_S.get(card.architecture, '50')} GB/s" if link < links else "<inactive>"
                lines.append(f"\t Link {link}: {rate}")
    return "".join(f"{line}\n" for line in lines)


def _lspci(base: Recording, box: Box) -> str:
    blocks = re.split(r"\n(?=[0-9a-f]{4}:)", base.entries["lspci-acs"].stdout.strip())
    is_gpu = re.compile(r"\S+ (3D|VGA compatible) controller: NVIDIA")
    gpu = next(block for block in blocks if is_gpu.match(block))
    others = [block.rstrip() for block in blocks if not is_gpu.match(block)]
    for slot, card in zip(box.slots, box.cards, strict=True):
        kind = "VGA compatible" if card.has_output else "3D"
        title = f"{_bus(slot).lower()} {kind} controller: NVIDIA Corporation Device {card.id[2:]} (rev a1)"
        others.append("\n".join([title, *gpu.rstrip().splitlines()[1:]]))
    return "\n\n".join(others) + "\n\n"


def _tree(base: Recording, box: Box) -> str:
    devices = re.findall(r"^(\S+:\S+) .*NVIDIA", base.entries["lspci-acs"].stdout, re.MULTILINE)
    bridges = re.findall(r"^(\S+:\S+) Bridge: NVIDIA", base.entries["lspci-acs"].stdout, re.MULTILINE)
    gone = {*devices} - {*bridges}
    rows = base.entries["pci-tree"].stdout.splitlines()
    kept = [row for row in rows if row.rpartition("/")[2] not in gone]
    places = (f"../../../devices/pci0000:00/{_bus(slot).lower()}" for slot in box.slots)
    return "".join(f"{row}\n" for row in (*kept, *places))

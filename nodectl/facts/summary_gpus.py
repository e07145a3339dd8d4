"""What `facts` says of GPUs and of the ways between them."""

from __future__ import annotations

from collections import Counter

from nodectl.model.gpus import FabricManager, Gpus
from nodectl.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink
from nodectl.parsers.nvidia.smi_p2p import NvidiaSmiP2p
from nodectl.parsers.nvidia.smi_topo import NvidiaSmiTopo


def gpu_words(value: object) -> str:
    """One line; empty for what is none of these."""
    match value:
        case Gpus():
            return _gpus(value)
        case NvidiaSmiTopo():
            pairs = Counter(
                word
                for number, gpu in enumerate(value.gpus)
                for other, word in value.links.get(gpu, {}).items()
                if other in value.gpus[number + 1 :]
            )
            nics = f", {len(value.nics)} NICs" if value.nics else ""
            return (_counted(pairs) or f"{len(value.gpus)} GPU alone") + nics
        case NvidiaSmiP2p():
            return _counted(Counter(word for row in value.status.values() for word in row.values())) or "one GPU alone"
        case NvidiaSmiNvlink():
            active = [sum(1 for link in gpu.links or () if link.active) for gpu in value.gpus]
            return ", ".join(f"{many} x {links} links active" for links, many in Counter(active).most_common())
        case FabricManager():
            return f"{value.version}, {value.unit_state or 'state not known'}"
    return ""


def _gpus(value: Gpus) -> str:
    names = [gpu.name or "?" for gpu in value.devices]
    each = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"
    return each + (f"; lost: {', '.join(value.lost)}" if value.lost else "")


def _counted(words: Counter[str]) -> str:
    return ", ".join(f"{many} x {word}" for word, many in words.most_common())

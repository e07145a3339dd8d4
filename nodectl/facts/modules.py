"""The kernel's loaded modules by name."""

from dataclasses import dataclass

from nodectl.facts.base import listed, text_fact
from nodectl.model.recording import Command

_OF_TRAINING = {"nvidia", "nvidia_uvm", "nvidia_peermem", "nouveau", "mlx5_ib", "ib_uverbs", "rdma_rxe", "gdrdrv"}


@dataclass(frozen=True, slots=True)
class Modules:
    """Names of the kernel's loaded modules, as /proc/modules writes them (with underscores)."""

    loaded: tuple[str, ...]


def _parse(text: str) -> Modules:
    names = [line.split(" ", 1)[0] for line in text.splitlines() if line.strip()]
    return Modules(tuple(sorted(name.replace("-", "_") for name in names)))


def _words(modules: Modules) -> str:
    return f"{len(modules.loaded)} loaded, of these: {listed(_OF_TRAINING.intersection(modules.loaded))}"


FACT = text_fact("modules", Command("modules", ("cat", "/proc/modules"), hardware=True), _parse, _words, row=330)

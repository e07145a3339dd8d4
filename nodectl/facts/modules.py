"""The kernel's loaded modules by name."""

from dataclasses import dataclass

from nodectl.facts.base import Fact, listed, output
from nodectl.model.recording import Command, Recording

_OF_TRAINING = {"nvidia", "nvidia_uvm", "nvidia_peermem", "nouveau", "mlx5_ib", "ib_uverbs", "rdma_rxe", "gdrdrv"}


@dataclass(frozen=True, slots=True)
class Modules:
    """Names of the kernel's loaded modules, as /proc/modules writes them (with underscores)."""

    loaded: tuple[str, ...]


def _read(recording: Recording) -> Modules:
    names = [line.split(" ", 1)[0] for line in output(recording, "modules").splitlines() if line.strip()]
    return Modules(tuple(sorted(name.replace("-", "_") for name in names)))


def _words(modules: Modules) -> str:
    return f"{len(modules.loaded)} loaded, of these: {listed(_OF_TRAINING.intersection(modules.loaded))}"


FACT = Fact("modules", (Command("modules", ("cat", "/proc/modules"), hardware=True),), _read, _words, row=330)

"""The kernel's loaded modules by name."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import listed, text_fact
from nodectl.model.recording import Command

_OF_TRAINING = {"nvidia", "nvidia_uvm", "nvidia_peermem", "nouveau", "mlx5_ib", "ib_uverbs", "rdma_rxe", "gdrdrv"}

# its name, its bytes, and how many use it (a dash where the kernel cannot unload modules)
_ROW = re.compile(r"([\w-]+) \d+ (?:\d+|-)(?: |$)")


@dataclass(frozen=True, slots=True)
class Modules:
    """Names of the kernel's loaded modules, as /proc/modules writes them (with underscores)."""

    loaded: tuple[str, ...]


def _parse(text: str) -> Modules:
    names = [_name(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    return Modules(tuple(sorted(names)))


def _name(number: int, line: str) -> str:
    match = _ROW.match(line)
    if match is None:
        # a module that stands in no line counts as not loaded
        raise ParseError(f"/proc/modules line {number}: {line[:120]!r}")
    return match[1].replace("-", "_")


def _words(modules: Modules) -> str:
    return f"{len(modules.loaded)} loaded, of these: {listed(_OF_TRAINING.intersection(modules.loaded))}"


FACT = text_fact("modules", Command("modules", ("cat", "/proc/modules"), hardware=True), _parse, _words, row=330)

"""What is mounted on the host: source, type, options."""

import re
from dataclasses import dataclass

from nodectl.common import file_systems
from nodectl.errors import ParseError
from nodectl.facts.base import text_fact
from nodectl.model.recording import Command

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system, as a line of /proc/self/mounts."""

    target: str
    source: str
    kind: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mounts:
    """All mounted file systems, the last one of a target being the one in use."""

    mounts: tuple[Mount, ...]


def _parse(text: str) -> Mounts:
    mounts = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = [_OCTAL.sub(lambda match: chr(int(match[1], 8)), word) for word in line.split(" ")]
        if len(words) < 4:
            raise ParseError(f"mounts: line {number}: {line!r}")
        source, target, kind, options = words[:4]
        mounts.append(Mount(target, source, kind, tuple(options.split(","))))
    return Mounts(tuple(mounts))


def _words(mounts: Mounts) -> str:
    shared = [
        f"{mount.target} ({mount.kind})" for mount in mounts.mounts if file_systems.is_network(mount.kind, mount.source)
    ]
    return f"{len(mounts.mounts)} mounted" + (f", over the network: {', '.join(shared)}" if shared else "")


FACT = text_fact("mounts", Command("mounts", ("cat", "/proc/self/mounts")), _parse, _words, row=810)

"""TCP ports on which something listens, with the addresses taken."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output
from nodectl.model.recording import Command, Recording


@dataclass(frozen=True, slots=True)
class Listening:
    """TCP ports on which something listens, each with the addresses that it took."""

    ports: Mapping[int, tuple[str, ...]]


def _read(recording: Recording) -> Listening:
    ports: dict[int, list[str]] = {}
    for number, line in enumerate(output(recording, "listening").splitlines(), start=1):
        words = line.split()
        address, _, port = words[3].rpartition(":") if len(words) >= 5 else ("", "", "")
        if not port.isdigit():
            raise ParseError(f"ss: line {number}: {line[:200]!r}")
        ports.setdefault(int(port), []).append(address)
    return Listening({port: tuple(sorted(set(ports[port]))) for port in sorted(ports)})


def _words(listening: Listening) -> str:
    return f"TCP {', '.join(map(str, listening.ports)) or 'none'}"


FACT = Fact("listening", (Command("listening", ("ss", "-ltnH")),), _read, _words, row=880)

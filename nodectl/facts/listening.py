"""TCP ports on which something listens, with the addresses taken."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.facts.base import matches, text_fact
from nodectl.model.recording import Command

_LINE = re.compile(r"\s*(?:\S+\s+){3}(?:(?P<address>\S*):)?(?P<port>\d+)\s+\S.*")


@dataclass(frozen=True, slots=True)
class Listening:
    """TCP ports on which something listens, each with the addresses that it took."""

    ports: Mapping[int, tuple[str, ...]]


def _parse(text: str) -> Listening:
    ports: dict[int, list[str]] = {}
    for match in matches(_LINE, text, "ss"):
        ports.setdefault(int(match["port"]), []).append(match["address"] or "")
    return Listening({port: tuple(sorted(set(ports[port]))) for port in sorted(ports)})


def _words(listening: Listening) -> str:
    return f"TCP {', '.join(map(str, listening.ports)) or 'none'}"


FACT = text_fact("listening", Command("listening", ("ss", "-ltnH")), _parse, _words, row=880)

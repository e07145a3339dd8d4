"""Ports that a launcher takes by default: a leftover that still listens makes the next job's start fail."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import About, Check, Subject
from nodectl.facts.listening import Listening
from nodectl.model.finding import Finding
from nodectl.model.status import Status

# torchrun: the store of the static rendezvous, and of c10d; `nodectl launch` chooses free ones itself
_DEFAULTS = {29500: "torchrun's --master-port", 29400: "torchrun's --rdzv-endpoint"}


def ports(host: Subject) -> Iterator[Finding]:
    """Nothing listens on torchrun's own ports."""
    found, expected = host.facts.get("listening"), "nothing listens there"
    yield from host.unknown(found, expected, "port_taken")
    if not isinstance(found, Listening):
        return
    taken = (
        host.finding(
            "port_taken",
            Status.WARNING,
            str(port),
            expected=expected,
            actual=f"taken on {', '.join(found.ports[port])}: {use}",
            remedy=f"`ss -ltnp 'sport = :{port}'` there names the process; end what an earlier job left",
        )
        for port, use in _DEFAULTS.items()
        if port in found.ports
    )
    yield from host.all_of("port_taken", taken, expected=expected, actual="nothing does")


CHECKS: tuple[Check, ...] = (ports,)
ABOUT = (About("port_taken", "ss", "warning: something listens on a port that torchrun takes by default"),)

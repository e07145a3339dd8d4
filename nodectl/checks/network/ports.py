"""Ports that a launcher takes by default: a leftover that still listens makes the next job's start fail."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.facts.network import Listening
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 140

# torchrun: the store of the static rendezvous, and of c10d; `nodectl launch` chooses free ones itself
_DEFAULTS = {29500: "torchrun's --master-port", 29400: "torchrun's --rdzv-endpoint"}


PORT_TAKEN = Check(
    "port_taken",
    fires="warning: something listens on a port that torchrun takes by default",
    expected="nothing listens there",
)


@judges_fact(Listening, PORT_TAKEN, reads=("listening",))
def ports(host: Subject, listening: Listening) -> Iterator[Finding]:
    """Fail where something listens on torchrun's own ports."""
    taken = (
        host.finding(
            PORT_TAKEN,
            Status.WARNING,
            str(port),
            actual=f"taken on {', '.join(listening.ports[port])}: {use}",
            remedy=f"`ss -ltnp 'sport = :{port}'` there names the process; end what an earlier job left",
        )
        for port, use in _DEFAULTS.items()
        if port in listening.ports
    )
    yield from host.all_of(PORT_TAKEN, taken, actual="no program listens on these ports")

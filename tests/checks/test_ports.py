"""Ports that torchrun takes by default."""

from nodectl.facts.network import Listening
from tests.checks.table import ABSENT, Case


def listening(*taken: int) -> dict[str, object]:
    return {"listening": Listening(dict.fromkeys((22, *taken), ("*",)))}


CASES = [
    Case("port_taken", "ok", listening()),
    Case("port_taken", "ok", listening(29501, 2950)),
    Case("port_taken", "warning", listening(29500), subject="29500"),
    Case("port_taken", "warning", listening(29400, 29500), subject="29400"),
    Case("port_taken", "nothing", {"listening": ABSENT}),
]

"""Hosts, steps and acceptances as tests need them."""

from nodectl.ledger.accept.means import Means
from nodectl.model.acceptance import Acceptance, Seen, Step, StepState
from nodectl.model.finding import Finding
from nodectl.model.status import Status

NAMES = tuple(f"node{number:02d}" for number in range(1, 9))


def means(*names: str, **more: object) -> dict[str, Means]:
    """Hosts that have torch and iperf3 and no GPU."""
    known: dict[str, object] = {"gpus": 0, "rdma": False, "torch": True, "iperf3": True, "machine": "lab"}
    return {name: Means(name, **{**known, **more}) for name in names or NAMES}  # type: ignore[arg-type]


def done(name: str, *hosts: str, took_s: float = 1.0) -> Step:
    """A step that is done on these hosts."""
    return Step(name, "what it does", "node", hosts or NAMES, 1.0, took_s, StepState.DONE)


def found(
    host: str, status: Status, *hosts: str, kind: str = "host", subject: str = "", actual: str = "bad"
) -> Finding:
    """A finding of the tcp probe."""
    return Finding(host, "tcp", status, subject, actual=actual, remedy="look", kind=kind, hosts=hosts or (host,))


def acceptance(*steps: Step, seen: tuple[Seen, ...] = ()) -> Acceptance:
    """One that is under way."""
    return Acceptance(
        "20261123T220000Z-0a1b", "quick", "inventory.yml", 1_795_000_000.0, None, "lab", "1.0", steps, (), seen
    )

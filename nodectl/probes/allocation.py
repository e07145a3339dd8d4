"""Nodes that Slurm rules, taken from it for a measurement: held by a program on its login host."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nodectl.errors import UnreachableError
from nodectl.model.host import Host
from nodectl.payload.common.host_lock import one_line
from nodectl.probes.base import Note
from nodectl.probes.events import Background, Event, Events, failure, terminate
from nodectl.transport.base import Transport

_STOP_S, _GIVEN_BACK_S = 5.0, 25.0
_REMEDY = "`scontrol show reservation` and `sinfo` say what can be had; --sbatch=--partition=… chooses"


@contextmanager
def allocated(transport: Transport, login: Host, name: str, options: Sequence[str], note: Note) -> Iterator[None]:
    """Hold what salloc gives for these options from here to the end of the block; `name` is the job's, and unique.

    What Slurm waits for is noted. UnreachableError where it gives nothing. Where it ends the allocation before the
    block does, this process is sent SIGTERM.
    """
    over = threading.Event()

    def tell(event: Event) -> None:
        words = {"waits": f"waits for its nodes: {event.get('reason')}", "held": "holds the nodes"}
        if event["event"] in words:
            note(one_line(f"Slurm's job {event['job']} ({name}) {words[event['event']]}"))

    holder = Background(transport, login, "probes.allocation", [name, *options], None, Events(tell))
    events = holder.events

    def why() -> str:
        return failure(holder.done, events)[0] if holder.done else "its login host fell silent"

    def watch() -> None:
        events.wait("end", None)
        if not over.is_set():
            note(f"Slurm's allocation has ended: {why()}")
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        if events.wait("held", None) is None:
            raise UnreachableError(f"{login.name}: Slurm gives no nodes: {why()}", _REMEDY)
        threading.Thread(target=watch, daemon=True).start()
        yield
    finally:
        over.set()
        if asked := events.of("asked"):
            terminate(transport, login, int(asked[0]["pid"]), _STOP_S)
            events.wait("end", _GIVEN_BACK_S)

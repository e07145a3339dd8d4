"""All kinds of faults, shown, and made to happen: the journal is written before a fault, and after it is undone."""

from __future__ import annotations

from nodectl.common.declarations import modules_below
from nodectl.common.spelling import meant
from nodectl.errors import DeclarationError, UsageError
from nodectl.lab.faults import real
from nodectl.lab.faults.base import Fault, Scene
from nodectl.lab.state import FaultRecord, LabFolder, with_fault, without_fault


def _declared() -> dict[str, Fault]:
    """Return the FAULTS of each module of `real` by name; DeclarationError where one is wrong or a name is taken."""
    faults: dict[str, Fault] = {}
    for module in modules_below(real.__name__, "FAULTS"):
        if not isinstance(module.FAULTS, tuple) or not all(isinstance(fault, Fault) for fault in module.FAULTS):
            raise DeclarationError(f"{module.__name__}: FAULTS is no tuple of nodectl.lab.faults.base.Fault")
        for fault in module.FAULTS:
            if fault.name in faults:
                raise DeclarationError(f"two faults are named {fault.name}; one is of {module.__name__}")
            faults[fault.name] = fault
    return faults


FAULTS = _declared()


def kinds_table() -> str:
    """Return the kinds for people: a line each, with the way in which it comes about."""
    width = max(map(len, FAULTS))
    return "\n".join(f"{name:<{width}}  {fault.way:<10}  {fault.about}" for name, fault in FAULTS.items())


def kinds_document() -> dict[str, object]:
    """Return the kinds for JSON; `found_by`: one of these checks has to see it."""
    kinds = [
        {
            "kind": name,
            "about": fault.about,
            "recorded": fault.dressed,
            "load": fault.load,
            "found_by": list(fault.checks),
        }
        for name, fault in FAULTS.items()
    ]
    return {"kinds": kinds}


def break_host(folder: LabFolder, kind: str, name: str) -> None:
    """Let `kind` happen to the host, after the journal has it; UsageError where either is unknown."""
    fault = _fault(kind)
    before = folder.running()
    host = before.host(name)
    if any((record.kind, record.host) == (kind, name) for record in before.faults):
        return
    scene = Scene(folder, before, host)
    scene.pid  # noqa: B018 - a dead host cannot be broken
    undo = fault.remember(scene)
    after = folder.write(with_fault(before, FaultRecord(kind, name, undo)))
    try:
        fault.happens(Scene(folder, after, host), undo)
    except BaseException:
        fault.heal(scene, undo)
        folder.write(before)
        raise


def heal_hosts(folder: LabFolder, name: str | None, kind: str | None = None) -> list[FaultRecord]:
    """Undo the faults of one host or of all, of one kind or of all, the last one first; return those undone."""
    state = folder.running()
    if name is not None:
        state.host(name)
    if kind is not None:
        _fault(kind)
    healed = [row for row in reversed(state.faults) if name in (None, row.host) and kind in (None, row.kind)]
    for record in healed:
        after = without_fault(state, record)
        scene = Scene(folder, after, state.host(record.host))
        if scene.host.up:
            FAULTS[record.kind].heal(scene, record.undo)
        state = folder.write(after)
    return healed


def _fault(kind: str) -> Fault:
    if kind not in FAULTS:
        raise UsageError(
            f"there is no fault '{kind}'", f"{meant(kind, FAULTS)}`nodectl lab fault --list` shows the kinds"
        )
    return FAULTS[kind]

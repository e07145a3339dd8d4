"""Breaking and healing: the journal is written before a fault happens, and after it is undone."""

from __future__ import annotations

from difflib import get_close_matches

from nodectl.errors import UsageError
from nodectl.lab.faults.base import Scene
from nodectl.lab.faults.catalogue import FAULTS
from nodectl.lab.state import FaultRecord, LabFolder, with_fault, without_fault


def break_host(folder: LabFolder, kind: str, name: str) -> None:
    """Let `kind` happen to the host; UsageError where either is unknown. Recorded first."""
    _require(kind)
    before = folder.running()
    host = before.host(name)
    if any((fault.kind, fault.host) == (kind, name) for fault in before.faults):
        return
    scene = Scene(folder, before, host)
    scene.pid  # noqa: B018 - a dead host cannot be broken
    undo = FAULTS[kind].remember(scene)
    record = FaultRecord(kind, name, undo)
    after = folder.write(with_fault(before, record))
    try:
        FAULTS[kind].happens(Scene(folder, after, host), undo)
    except BaseException:
        FAULTS[kind].heal(scene, undo)
        folder.write(before)
        raise


def heal_hosts(folder: LabFolder, name: str | None, kind: str | None = None) -> list[FaultRecord]:
    """Undo the recorded faults of one host or of all, of one kind or of all, the last one first; those that were."""
    state = folder.running()
    if name is not None:
        state.host(name)
    if kind is not None:
        _require(kind)
    healed = [fault for fault in reversed(state.faults) if name in (None, fault.host) and kind in (None, fault.kind)]
    for fault in healed:
        after = without_fault(state, fault)
        scene = Scene(folder, after, state.host(fault.host))
        if scene.host.up:
            FAULTS[fault.kind].heal(scene, fault.undo)
        state = folder.write(after)
    return healed


def _require(kind: str) -> None:
    if kind not in FAULTS:
        near = get_close_matches(kind, FAULTS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"no fault '{kind}'", f"{hint}`nodectl lab fault --list` shows the kinds")

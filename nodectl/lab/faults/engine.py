"""All kinds of faults, shown, and made to happen: the journal is written before a fault, and after it is undone."""

from __future__ import annotations

from types import ModuleType

from nodectl.common.declarations import modules_below
from nodectl.common.spelling import meant
from nodectl.errors import DeclarationError, UsageError
from nodectl.lab.faults import real, recorded
from nodectl.lab.faults.base import Act, Fault, Output, Outputs, Scene
from nodectl.lab.faults.editing import PEER, edited, recording_of, write_recording
from nodectl.lab.state import FaultRecord, LabFolder, with_fault, without_fault


def _declared(*packages: ModuleType) -> dict[str, Fault]:
    """The FAULTS of each module of the packages by name, in the order of the modules' names."""
    faults: dict[str, Fault] = {}
    for package in packages:
        for module in modules_below(package.__name__, "FAULTS"):
            if not isinstance(module.FAULTS, tuple) or not all(isinstance(fault, Fault) for fault in module.FAULTS):
                raise DeclarationError(f"{module.__name__}: FAULTS is no tuple of nodectl.lab.faults.base.Fault")
            for fault in module.FAULTS:
                if fault.name in faults:
                    raise DeclarationError(f"two faults are named {fault.name}; one is of {module.__name__}")
                faults[fault.name] = fault
    return faults


FAULTS = _declared(real, recorded)


def kinds_table() -> str:
    """The kinds for people: a line each, with the way in which it comes about."""
    width = max(map(len, FAULTS))
    return "\n".join(f"{name:<{width}}  {fault.way:<10}  {fault.about}" for name, fault in FAULTS.items())


def kinds_document() -> dict[str, object]:
    """The kinds for JSON; `found_by`: one of these checks has to see it."""
    kinds = [
        {
            "kind": name,
            "about": fault.about,
            "recorded": fault.recorded,
            "load": fault.load,
            "found_by": list(fault.checks),
        }
        for name, fault in FAULTS.items()
    ]
    return {"kinds": kinds}


def break_host(folder: LabFolder, kind: str, name: str) -> None:
    """Let `kind` happen to the host; UsageError where either is unknown. Recorded first."""
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
        _act(fault, fault.happens, Scene(folder, after, host), undo)
    except BaseException:
        _act(fault, fault.heal, scene, undo)
        folder.write(before)
        raise


def heal_hosts(folder: LabFolder, name: str | None, kind: str | None = None) -> list[FaultRecord]:
    """Undo the recorded faults of one host or of all, of one kind or of all, the last one first; those undone."""
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
            fault = FAULTS[record.kind]
            _act(fault, fault.heal, scene, record.undo)
        state = folder.write(after)
    return healed


def spoiled(outputs: Outputs, kinds: tuple[str, ...], peer: Outputs | None = None) -> dict[str, Output]:
    """A recording's outputs with the recorded faults among these kinds, one after the other; `peer`: another host's."""
    others = {f"{PEER}{key}": output for key, output in (peer or {}).items()}
    changed = dict(outputs)
    for kind in kinds:
        edit = FAULTS[kind].edit
        if edit is not None:
            changed |= edited(others | changed, kind, edit)
    return changed


def _act(fault: Fault, act: Act, scene: Scene, undo: str) -> None:
    """Let a real fault happen, or heal; of a recorded one the host's recording is written as the scene has it."""
    if fault.recorded:
        _write_spoiled(scene)
    else:
        act(scene, undo)


def _write_spoiled(scene: Scene) -> None:
    """Let the host say what its recording says with the faults that stand on it now."""
    kinds = tuple(kind for kind in scene.kinds() if FAULTS[kind].recorded)
    peer = next((host for host in scene.state.hosts if host.name != scene.host.name and host.up), None)
    others = recording_of(Scene(scene.folder, scene.state, peer)) if peer else {}
    write_recording(scene, lambda outputs: spoiled(outputs, kinds, others), changed=bool(kinds))


def _fault(kind: str) -> Fault:
    if kind not in FAULTS:
        raise UsageError(
            f"there is no fault '{kind}'", f"{meant(kind, FAULTS)}`nodectl lab fault --list` shows the kinds"
        )
    return FAULTS[kind]

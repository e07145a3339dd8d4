"""Faults of hardware: the files of a host that is dressed in a recording, edited, and put back as they were."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.errors import LabError, UsageError
from nodectl.lab.faults.base import Fault, Scene

_RECORDED = "var/lib/nodectl-lab/recorded"
_PRISTINE, _CUT, _BYTES = "recorded-before", "cut", "surrogateescape"


@dataclass(frozen=True, slots=True)
class Output:
    """What a recorded command printed, and how it ended; None where it was cut."""

    stdout: str
    stderr: str = ""
    exit_status: int | None = 0


Outputs = Mapping[str, Output]
Edit = Callable[[Outputs], dict[str, Output]]


class CannotEditError(Exception):
    """The recording has nothing of which this could go wrong."""


def fault(name: str, about: str, checks: tuple[str, ...], edit: Edit) -> Fault:
    """A kind that changes what the host's recording says."""
    EDITS[name] = edit
    return Fault(name, about, checks, _settle, _settle, recorded=True)


EDITS: dict[str, Edit] = {}
"""By the fault's name: which outputs become others; all else of the recording stays."""


def spoiled(outputs: Outputs, kinds: tuple[str, ...]) -> dict[str, Output]:
    """The outputs with the faults of these kinds, one after the other."""
    found = dict(outputs)
    for kind in kinds:
        if kind in EDITS:
            found |= _edited(found, kind)
    return found


def _edited(outputs: Outputs, kind: str) -> dict[str, Output]:
    try:
        changed = EDITS[kind](outputs)
        if all(outputs.get(key) == output for key, output in changed.items()):
            raise CannotEditError("the recording says so already")
    except CannotEditError as error:
        remedy = "choose another kind, or `nodectl lab up --as` another recording"
        raise UsageError(f"{kind}: {error}", remedy) from error
    return changed


def _settle(scene: Scene, undo: str) -> None:
    """Let the host say what its recording says with the faults that stand on it now."""
    folder, pristine = scene.root / _RECORDED, scene.folder.store / scene.host.name / _PRISTINE
    kinds = tuple(kind for kind in scene.kinds() if kind in EDITS)
    if not kinds and not pristine.exists():
        return
    if not folder.is_dir():
        raise UsageError(
            f"{scene.host.name} has no hardware of its own that could fail",
            "dress the lab in a recording: `nodectl lab up --as dgx-a100`",
        )
    if not pristine.exists():
        draft = pristine.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(folder, draft)
        draft.rename(pristine)
    before = read_outputs(pristine)
    _write(folder, spoiled(before, kinds), pristine, before)
    if not kinds:
        shutil.rmtree(pristine)


def read_outputs(folder: Path) -> dict[str, Output]:
    """All of a dressed host's recorded outputs."""
    return {path.stem: _read(folder, path.stem) for path in sorted(folder.glob("*.out"))}


def _read(folder: Path, key: str) -> Output:
    texts = {ending: path.read_bytes().decode(errors=_BYTES) for ending, path in _files(folder, key) if path.exists()}
    status = texts.get("status", "0").strip() or "0"
    if status != _CUT and not status.isdigit():
        raise LabError(f"{folder / key}.status says {status[:40]!r}, which is no exit status")
    return Output(texts.get("out", ""), texts.get("err", ""), None if status == _CUT else int(status))


def _files(folder: Path, key: str) -> list[tuple[str, Path]]:
    """The output last: while it is not there, the key is not recorded."""
    return [(ending, folder / f"{key}.{ending}") for ending in ("status", "err", "out")]


def _write(folder: Path, wanted: Outputs, pristine: Path, before: Outputs) -> None:
    """Only what differs; what is as before gets its old files back, to the byte."""
    found = read_outputs(folder)
    for key in found.keys() - wanted.keys():
        for _, path in reversed(_files(folder, key)):
            path.unlink(missing_ok=True)
    for key, output in wanted.items():
        if before.get(key) == output:
            _give_back(folder, pristine, key)
        elif found.get(key) != output:
            status = _CUT if output.exit_status is None else str(output.exit_status)
            texts = {"status": f"{status}\n", "err": output.stderr, "out": output.stdout}
            for ending, path in _files(folder, key):
                replace_file(path, texts[ending].encode(errors=_BYTES), mode=0o644)


def _give_back(folder: Path, pristine: Path, key: str) -> None:
    for (_, path), (_, old) in zip(_files(folder, key), _files(pristine, key), strict=True):
        if not old.exists():
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != old.read_bytes():
            replace_file(path, old.read_bytes(), mode=0o644)

"""Edits of a recording, by which hardware that is not there can fail: one place of a text is changed, or none can be.

The files of a host that is dressed in a recording are edited with them, and put back as they were.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.common.spelling import meant
from nodectl.errors import DeclarationError, LabError, UsageError
from nodectl.facts.catalogue import all_facts, commands_for
from nodectl.lab.dress import RECORDED
from nodectl.lab.faults.base import Edit, Fault, Output, Outputs, Scene
from nodectl.model.host import Host

# before the keys of another host's outputs
PEER = "peer/"
_PRISTINE, _CUT, _BYTES = "recorded-before", "cut", "surrogateescape"
_LEVEL = re.compile(r"(?s)(<\d{1,3}>)?(.*)")
_GPU = re.compile(r"(?m)^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0$")


class CannotEditError(Exception):
    """The recording has nothing of which this could go wrong."""


def edited(outputs: Outputs, kind: str, edit: Edit) -> dict[str, Output]:
    """The outputs that `edit` changes; UsageError, which names the kind, where the recording has no place for it."""
    try:
        changed = edit(outputs)
        if all(outputs.get(key) == output for key, output in changed.items()):
            raise CannotEditError("the recording says so already")
    except CannotEditError as error:
        remedy = "choose another kind, or `nodectl lab up --as` another recording"
        raise UsageError(f"{kind}: {error}", remedy) from error
    return changed


def recording_of(scene: Scene) -> dict[str, Output]:
    """Return what the host's recording says now; empty where it is dressed in none."""
    return _read_outputs(scene.root / RECORDED)


def write_recording(scene: Scene, change: Callable[[Outputs], dict[str, Output]], *, changed: bool) -> None:
    """Replace what the host's recording says by `change` of what it said at first; without a change, put that back."""
    folder, pristine = scene.root / RECORDED, scene.folder.store / scene.host.name / _PRISTINE
    if not changed and not pristine.exists():
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
    before = _read_outputs(pristine)
    _write(folder, _changed(change, before, scene), pristine, before)
    if not changed:
        shutil.rmtree(pristine)


def _changed(change: Callable[[Outputs], dict[str, Output]], before: Outputs, scene: Scene) -> dict[str, Output]:
    """The changed outputs; where a fault is of what the host answers itself, its answer of now with that change."""
    try:
        return change(before)
    except UsageError:
        live = _live(scene)
        after = change({**live, **before})
        return {key: output for key, output in after.items() if key in before or output != live.get(key)}


def _live(scene: Scene) -> dict[str, Output]:
    """Return what the host answers to commands that no recording answers for it."""
    found = {}
    for command in commands_for(Host(scene.host.name, scene.host.name), all_facts()):
        if not command.hardware and not command.root:
            with suppress(LabError):
                found[command.key] = Output(scene.run(["env", "HOME=/root", *command.argv]))
    return found


def _read_outputs(folder: Path) -> dict[str, Output]:
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
    present = _read_outputs(folder)
    for key in present.keys() - wanted.keys():
        for _, path in reversed(_files(folder, key)):
            path.unlink(missing_ok=True)
    for key, output in wanted.items():
        if before.get(key) == output:
            _give_back(folder, pristine, key)
        elif present.get(key) != output:
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


def text_of(outputs: Outputs, key: str) -> str:
    """A command's standard output; the fault cannot be where the recording has none."""
    _require_known(key, outputs)
    if key not in outputs or not outputs[key].stdout.strip():
        raise CannotEditError(f"the recording has no {key}")
    return outputs[key].stdout


def _require_known(key: str, outputs: Outputs) -> None:
    """DeclarationError where no recording can have it: the fault's author mistook the name."""
    if key in outputs:
        return
    known = {command.key for command in commands_for(Host("any", "any"), all_facts())}
    if key not in known:
        raise DeclarationError(f"a fault edits {key!r}, and no fact has a command of that key", meant(key, known))


def with_text(outputs: Outputs, key: str, text: str) -> dict[str, Output]:
    """That command with another text."""
    return {key: replace(outputs[key], stdout=text)}


def recorded(name: str, about: str, check: str, *edits: Edit) -> Fault:
    """A fault that edits the host's recording, and that `check` has to find."""
    return Fault(name, about, (check,), both(*edits))


def once(key: str, pattern: str, replacement: str, *, count: int = 1) -> Edit:
    """The first place where `pattern` matches becomes `replacement`; each line is matched by itself."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        text, changes = re.subn(pattern, replacement, text_of(outputs, key), count=count, flags=re.MULTILINE)
        if not changes:
            raise CannotEditError(f"{key} of this recording has no place for it")
        return with_text(outputs, key, text)

    return edit


def of_peer(*keys: str) -> Edit:
    """These commands answer as another host's do: the host is its clone."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        missing = [key for key in keys if key not in outputs or PEER + key not in outputs]
        if missing:
            raise CannotEditError(f"no other host here has {', '.join(missing)}")
        return {key: outputs[PEER + key] for key in keys}

    return edit


def everywhere(key: str, pattern: str, replacement: str) -> Edit:
    """All places where `pattern` matches become `replacement`."""
    return once(key, pattern, replacement, count=0)


def both(*edits: Edit) -> Edit:
    """An edit that makes several, one after the other."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        changed: dict[str, Output] = {}
        for part in edits:
            changed |= part({**outputs, **changed})
        return changed

    return edit


def says(keys: Sequence[str], stdout: str = "", *, exit_status: int) -> Edit:
    """The whole output of these commands is another one."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        for key in keys:
            _require_known(key, outputs)
            if key not in outputs:
                raise CannotEditError(f"the recording has no {key}")
        return dict.fromkeys(keys, Output(stdout, "", exit_status))

    return edit


def logged(line: Callable[[Outputs], str]) -> Edit:
    """The kernel's log has one line more; `line` may need the host's own addresses.

    A line that begins with `<` says itself by whom it is, and how grave.
    """

    def edit(outputs: Outputs) -> dict[str, Output]:
        text = text_of(outputs, "dmesg")
        level, told = _LEVEL.fullmatch(line(outputs)).groups("<4>")  # type: ignore[union-attr]  # all of it is optional
        return with_text(outputs, "dmesg", f"{text}{level}[1295000.118204] {told}\n")

    return edit


def gpu(number: int, *fields: tuple[str, str]) -> Edit:
    """In one GPU's part of `nvidia-smi -q`, fields named by `Group/Key` or `Key` get other values."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        parts = parts_with(outputs, number)
        for path, value in fields:
            parts[number + 1] = _with_field(parts[number + 1], path, value)
        return with_text(outputs, "nvidia-smi-q", "".join(parts))

    return edit


def every_gpu(*fields: tuple[str, str]) -> Edit:
    """The same on every GPU that the recording has."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        count = len(parts_of(outputs)) - 1
        return both(*(gpu(number, *fields) for number in range(count)))(outputs)

    return edit


def parts_with(outputs: Outputs, number: int) -> list[str]:
    """The head of `nvidia-smi -q`, then each GPU's part; the GPU of that number has to be there."""
    parts = parts_of(outputs)
    if number + 1 >= len(parts):
        raise CannotEditError(f"the recording has no GPU {number}")
    return parts


def parts_of(outputs: Outputs) -> list[str]:
    """The head of `nvidia-smi -q`, then each GPU's part."""
    text = text_of(outputs, "nvidia-smi-q")
    starts = [match.start() for match in _GPU.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def _with_field(part: str, path: str, value: str) -> str:
    """Groups are found in their order, by the indent of their lines."""
    position, indent = 0, ""
    *groups, key = path.split("/")
    for group in groups:
        heading = re.compile(rf"^({indent} +){re.escape(group)} *$", re.MULTILINE).search(part, position)
        if heading is None:
            raise CannotEditError(f"nvidia-smi -q of this recording has no {path}")
        position, indent = heading.end(), heading[1]
    line = re.compile(rf"^({indent} +{re.escape(key)} *: ).*$", re.MULTILINE).search(part, position)
    if line is None:
        raise CannotEditError(f"nvidia-smi -q of this recording has no {path}")
    return f"{part[: line.start()]}{line[1]}{value}{part[line.end() :]}"


def bus_of(outputs: Outputs, number: int) -> str:
    """A GPU's place as the kernel writes it: 0000:07:00."""
    return parts_with(outputs, number)[number + 1].split()[1][4:-2].lower()

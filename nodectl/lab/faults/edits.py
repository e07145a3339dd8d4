"""The ways in which texts of a recording are changed: one place is found, or the fault cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from nodectl.lab.faults.recorded import CannotEditError, Edit, Output, Outputs

_GPU = re.compile(r"(?m)^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0$")


def text_of(outputs: Outputs, key: str) -> str:
    """A command's standard output; the fault cannot be where the recording has none."""
    if key not in outputs or not outputs[key].stdout.strip():
        raise CannotEditError(f"the recording has no {key}")
    return outputs[key].stdout


def with_text(outputs: Outputs, key: str, text: str) -> dict[str, Output]:
    """That command with another text."""
    return {key: replace(outputs[key], stdout=text)}


def once(key: str, pattern: str, replacement: str, *, flags: int = re.MULTILINE) -> Edit:
    """The first place where `pattern` matches becomes `replacement`."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        return with_text(outputs, key, _swap(text_of(outputs, key), pattern, replacement, key, flags, 1))

    return edit


def everywhere(key: str, pattern: str, replacement: str) -> Edit:
    """All places where `pattern` matches become `replacement`."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        return with_text(outputs, key, _swap(text_of(outputs, key), pattern, replacement, key, re.MULTILINE, 0))

    return edit


def _swap(text: str, pattern: str, replacement: str, key: str, flags: int, count: int) -> str:
    changed, found = re.subn(pattern, replacement, text, count=count, flags=flags)
    if not found:
        raise CannotEditError(f"{key} of this recording has no place for it")
    return changed


def both(*edits: Edit) -> Edit:
    """One after the other."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        changed: dict[str, Output] = {}
        for each in edits:
            changed |= each({**outputs, **changed})
        return changed

    return edit


def says(key: str, stdout: str = "", stderr: str = "", exit_status: int = 0) -> Edit:
    """The whole output is another one."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        if key not in outputs:
            raise CannotEditError(f"the recording has no {key}")
        return {key: Output(stdout, stderr, exit_status)}

    return edit


def logged(line: Callable[[Outputs], str]) -> Edit:
    """The kernel's log has one line more; `line` may need the host's own addresses."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        text = text_of(outputs, "dmesg")
        return with_text(outputs, "dmesg", f"{text}[1295000.118204] {line(outputs)}\n")

    return edit


def gpu(number: int, *fields: tuple[str, str]) -> Edit:
    """In one GPU's part of `nvidia-smi -q`, fields named by `Group/Key` or `Key` get other values."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        parts = parts_of(text_of(outputs, "nvidia-smi-q"))
        if number + 1 >= len(parts):
            raise CannotEditError(f"the recording has no GPU {number}")
        for path, value in fields:
            parts[number + 1] = _with_field(parts[number + 1], path, value)
        return with_text(outputs, "nvidia-smi-q", "".join(parts))

    return edit


def every_gpu(*fields: tuple[str, str]) -> Edit:
    """The same on every GPU that the recording has."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        count = len(parts_of(text_of(outputs, "nvidia-smi-q"))) - 1
        return both(*(gpu(number, *fields) for number in range(count)))(outputs)

    return edit


def parts_of(text: str) -> list[str]:
    """The head of `nvidia-smi -q`, then each GPU's part."""
    starts = [match.start() for match in _GPU.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def _with_field(part: str, path: str, value: str) -> str:
    """Groups are found in their order, by the indent of their lines."""
    position, indent = 0, ""
    *groups, key = path.split("/")
    for group in groups:
        found = re.compile(rf"^({indent} +){re.escape(group)} *$", re.MULTILINE).search(part, position)
        if found is None:
            raise CannotEditError(f"nvidia-smi -q of this recording has no {path}")
        position, indent = found.end(), found[1]
    line = re.compile(rf"^({indent} +{re.escape(key)} *: ).*$", re.MULTILINE).search(part, position)
    if line is None:
        raise CannotEditError(f"nvidia-smi -q of this recording has no {path}")
    return f"{part[: line.start()]}{line[1]}{value}{part[line.end() :]}"


def bus_of(outputs: Outputs, number: int) -> str:
    """A GPU's place as the kernel writes it: 0000:07:00."""
    parts = parts_of(text_of(outputs, "nvidia-smi-q"))
    if number + 1 >= len(parts):
        raise CannotEditError(f"the recording has no GPU {number}")
    return parts[number + 1].split()[1][4:-2].lower()

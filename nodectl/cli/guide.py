"""The commands by task, and for each of them examples that can be typed as they stand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click

_GUIDE = json.loads(Path(__file__).with_suffix(".json").read_bytes())
# heading → its commands, in the order in which one needs them
TASKS: Mapping[str, Sequence[str]] = _GUIDE["tasks"]
# a command's path → what is typed → what that does
EXAMPLES: Mapping[str, Mapping[str, str]] = _GUIDE["examples"]
_OTHERS = "Others"


def examples_of(path: str) -> tuple[tuple[str, str], ...]:
    """Return a command's examples; one probe's, which is found by being there, are those that fit every probe."""
    group, _, name = path.partition(" ")
    if group == "probe" and name:
        return (
            (f"nodectl probe {name}", "on all hosts of the inventory"),
            (f"nodectl probe {name} -l 'node[01-02]' --output json", "on two of them; every figure"),
        )
    return tuple(EXAMPLES.get(path, {}).items())


def epilog(path: str) -> str:
    """Return the examples as the end of a help text; empty if there are none."""
    examples = examples_of(path)
    width = max((len(line) for line, _ in examples), default=0)
    lines = [f"  {line:<{width}}  {what}" for line, what in examples]
    return "\n".join(["\b", "Examples:", *lines]) if lines else ""


def with_examples(command: click.Command, path: str) -> click.Command:
    """Add examples to the end of the help of the command and of all below it, and return it; idempotent."""
    ending = epilog(path)
    if ending and ending not in (command.epilog or ""):
        command.epilog = "\n\n".join(filter(None, [command.epilog, ending]))
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            with_examples(child, f"{path} {name}")
    return command


def by_task(commands: Iterable[str]) -> dict[str, list[str]]:
    """Heading → those of the commands that belong there; what stands below none comes last."""
    there = set(commands)
    tasks = {heading: [name for name in names if name in there] for heading, names in TASKS.items()}
    others = sorted(there - {name for names in tasks.values() for name in names})
    return {heading: names for heading, names in {**tasks, _OTHERS: others}.items() if names}

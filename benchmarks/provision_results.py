"""What tasks said in two runs of a playbook, compared: knows which values are a run's own and not a result."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# (play, role, task, host, how many of that name came before)
Key = tuple[str, str, str, str, int]
Results = Mapping[Key, Mapping[str, Any]]

# each keeps its files elsewhere while a task runs
_TEMPORARY = re.compile(r"/\.ansible/tmp/[^/]+/[^/]*")
# how a task was called and when, not what it found; mitogen reports no interpreter of its own
_OF_THE_RUN = ("start", "end", "delta", "invocation", "discovered_interpreter_python")


def read_results(path: Path) -> Results:
    """Return the lines of callback_plugins/task_results.py, by task and host."""
    seen: Counter[tuple[str, str, str, str]] = Counter()
    results: dict[Key, Mapping[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        name = (entry["play"], entry["role"], entry["task"], entry["host"])
        results[(*name, seen[name])] = {"outcome": entry["outcome"], "values": entry["values"]}
        seen[name] += 1
    return results


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, plain value) of everything in a result; empty lists and mappings count as values."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            if not (str(name).startswith("_ansible_") or name in _OF_THE_RUN):
                yield from flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from flat(inner, f"{path}[{number}]")
    else:
        yield path, _TEMPORARY.sub("/.ansible/tmp/", value) if isinstance(value, str) else value


def unsteady(runs: Sequence[Results]) -> set[tuple[Key, str]]:
    """Return the values that differ between runs of one and the same configuration; outcomes never count as such."""
    found: set[tuple[Key, str]] = set()
    for run in runs[1:]:
        for key in runs[0].keys() & run.keys():
            one, other = dict(flat(runs[0][key])), dict(flat(run[key]))
            paths = {path for path in one.keys() | other.keys() if one.get(path, _GONE) != other.get(path, _GONE)}
            found |= {(key, path) for path in paths if path != "outcome"}
    return found


def differences(reference: Results, other: Results, ignored: set[tuple[Key, str]]) -> Iterator[str]:
    """One line for each task and value that is not the same."""
    for key in sorted(reference.keys() ^ other.keys()):
        yield f"{_name(key)}: only in {'the reference' if key in reference else 'this one'}"
    for key in sorted(reference.keys() & other.keys()):
        one, two = dict(flat(reference[key])), dict(flat(other[key]))
        for path in sorted(one.keys() | two.keys()):
            before, after = one.get(path, _GONE), two.get(path, _GONE)
            if before != after and (key, path) not in ignored:
                yield f"{_name(key)}: {path} is {after!r}, was {before!r}"


def _name(key: Key) -> str:
    play, role, task, host, number = key
    return f"{host} '{role or play}: {task}'" + (f" ({number + 1})" if number else "")


class _Gone:
    def __repr__(self) -> str:
        return "(absent)"


_GONE = _Gone()

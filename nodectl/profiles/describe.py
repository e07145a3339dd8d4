"""A profile as a flat list of its values, each with its reason, its source and where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from nodectl.profiles.addresses import addresses
from nodectl.profiles.compat import Problem
from nodectl.profiles.schema import Floor, Hardware, Setting, Stack, Tuning

# about the other fields, not fields of their own
_NOTES = ("description", "sources", "unverified")


def values(profile: Hardware | Stack | Tuning) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, {value, why, source, origin, unverified}) of each value; keys without anything to say are left out."""
    sources = getattr(profile, "sources", {})
    unverified = getattr(profile, "unverified", {})
    for path, row in _flat(profile, ""):
        row.setdefault("source", _note(sources, path))
        row.setdefault("unverified", _note(unverified, path))
        yield path, {key: value for key, value in row.items() if key == "value" or value}


def _note(notes: Mapping[str, str], path: str) -> str:
    """Return the note on the path, else on the nearest field that it is a part of; empty if there is none."""
    names = [name for name in notes if path == name or path.startswith((f"{name}.", f"{name}["))]
    return notes[max(names, key=len)] if names else ""


def _flat(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, Floor):
        yield path, {"value": floor_text(value), "source": value.source}
    elif isinstance(value, Setting):
        yield path, _setting(value)
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            if path or name not in _NOTES:
                yield from _flat(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}")
    elif isinstance(value, tuple) and any(isinstance(inner, BaseModel) for inner in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    elif path == "index" and value is not None:
        yield path, {"value": addresses().index(value)}
    else:
        yield path, {"value": list(value) if isinstance(value, tuple) else value}


def floor_text(floor: Floor) -> str:
    """`nccl over nvswitch, collective all_reduce, gpus 8: at least 228 GB/s`, with what is tolerated below it."""
    where = f" over {floor.link_class}" if floor.link_class else ""
    conditions = "".join(f", {name} {value}" for name, value in floor.conditions.items())
    less = f", {floor.tolerance_percent:g} % less tolerated" if floor.tolerance_percent else ""
    return f"{floor.probe}{where}{conditions}: at least {floor.value:g} {floor.unit}{less}"


def _setting(setting: Setting) -> dict[str, Any]:
    forms = [
        f"{form.value} (NCCL < {form.below})" if form.below else form.value for form in getattr(setting, "forms", ())
    ]
    value = " | ".join(forms) or getattr(setting, "value", None)
    return {"value": value, "why": setting.why, "source": setting.source, "origin": setting.origin}


def own_warnings(profile: Hardware | Stack | Tuning) -> tuple[str, ...]:
    """Return what the profile warns of by itself, with whatever else it is used."""
    warnings = [f"{field} is not confirmed: {why}" for field, why in sorted(getattr(profile, "unverified", {}).items())]
    names = getattr(profile, "debug_variables", ())
    if names:
        warnings.append(f"{', '.join(names)}: of NCCL's debugging class, which may cost speed or hang a job")
    return tuple(warnings)


def problem_row(problem: Problem) -> dict[str, Any]:
    """Return a problem as plain data for JSON, with whether it refuses."""
    return {
        "code": problem.code,
        "reason": problem.reason,
        "nearest": problem.nearest,
        "source": problem.source,
        "refused": problem.refuses,
    }

"""The only merge of profiles: base, hardware, stack, tuning, then a host's overrides, into what one host should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodectl.errors import ProfileError
from nodectl.profiles.compat import IncompatibleError, refusals
from nodectl.profiles.load import check_document, read_document, read_profile
from nodectl.profiles.schema import Document, Hardware, Stack, Tuning
from nodectl.resources import profiles_dir

OVERRIDES = "nodectl_overrides"
_SETTINGS = ("sysctl", "nccl", "limits")
_FIELDS = ("hardware", "stack")


@dataclass(frozen=True, slots=True)
class Resolved:
    """What one host should be; `names` holds the profiles' names by kind."""

    names: Mapping[str, str]
    hardware: Hardware
    stack: Stack
    tuning: Tuning

    @property
    def nccl_env(self) -> dict[str, str]:
        """NCCL variables, rendered for the stack's NCCL."""
        return {name: setting.render(self.stack.nccl) for name, setting in sorted(self.tuning.nccl.items())}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator must be told each time these profiles are used."""
        found = ", ".join(self.tuning.debug_variables)
        text = f"tuning {self.names['tuning']} persists {found}: of NCCL's debugging class, which may cost speed"
        return (f"{text} or hang a job; use it to measure, not to stay",) if found else ()

    def as_variables(self) -> dict[str, Any]:
        """Plain data for Ansible: names, stack, sysctl, nccl_env, limits, warnings."""
        stack = self.stack
        return {
            "names": dict(self.names),
            "stack": {
                "requirements": list(stack.requirements),
                "index": stack.index,
                "python_min": stack.python.min,
                "python_max": stack.python.max,
                "nccl": stack.nccl,
            },
            "sysctl": [
                {"key": key, "value": setting.value, "never_lower": setting.never_lower, "why": setting.why}
                for key, setting in sorted(self.tuning.sysctl.items())
            ],
            "nccl_env": self.nccl_env,
            "limits": {name: setting.value for name, setting in sorted(self.tuning.limits.items())},
            "warnings": list(self.warnings),
        }


def resolve(
    hardware: str,
    stack: str,
    tuning: str,
    *,
    overrides: Mapping[str, Any] | None = None,
    extra_dirs: Sequence[Path] = (),
) -> Resolved:
    """Merge and validate; ProfileError for an unknown name or a malformed profile, its child for an impossible pair."""
    changes = _checked_overrides(overrides)
    documents = {
        kind: _load(kind, name, extra_dirs)
        for kind, name in (("hardware", hardware), ("stack", stack), ("tuning", tuning))
    }
    for kind in _FIELDS:
        documents[kind] |= changes.get(kind, {})
    _merge_settings(documents["tuning"], changes)
    resolved = Resolved(
        names={"hardware": hardware, "stack": stack, "tuning": tuning},
        hardware=check_document(Hardware, documents["hardware"], f"hardware {hardware} with {OVERRIDES}"),
        stack=check_document(Stack, documents["stack"], f"stack {stack} with {OVERRIDES}"),
        tuning=check_document(Tuning, documents["tuning"], f"tuning {tuning} with {OVERRIDES}"),
    )
    reasons = refusals(resolved.hardware, resolved.stack)
    if reasons:
        raise IncompatibleError(f"hardware {hardware}, stack {stack}: {'; '.join(reasons)}", "choose another stack")
    return resolved


def load_profile(kind: str, name: str, extra_dirs: Sequence[Path] = ()) -> Hardware | Stack | Tuning:
    """One profile by itself, validated; a tuning comes without the base."""
    document, path = read_profile(kind, name, extra_dirs)
    models: dict[str, type[Hardware | Stack | Tuning]] = {"hardware": Hardware, "stack": Stack, "tuning": Tuning}
    return check_document(models[kind], _with_origin(document, f"{kind} {name}"), str(path))


def base_tuning() -> Tuning:
    """What holds on every node, whatever its profiles."""
    path = profiles_dir() / "base.yml"
    return check_document(Tuning, _with_origin(read_document(path), "base"), str(path))


def _load(kind: str, name: str, extra_dirs: Sequence[Path]) -> Document:
    document = load_profile(kind, name, extra_dirs).model_dump(exclude_unset=True)
    if kind != "tuning":
        return document
    base = base_tuning().model_dump(exclude_unset=True)
    for group in _SETTINGS:
        document[group] = base.get(group, {}) | document.get(group, {})
    return document


def _with_origin(document: Document, origin: str) -> Document:
    """Each setting told where it came from; what is malformed is left for the schema to refuse."""
    marked = dict(document)
    for group in _SETTINGS:
        settings = document.get(group)
        if isinstance(settings, dict):
            marked[group] = {
                key: {"origin": origin, **setting} if isinstance(setting, dict) else setting
                for key, setting in settings.items()
            }
    return marked


def _checked_overrides(overrides: Mapping[str, Any] | None) -> Document:
    if overrides is None:
        return {}
    known = {*_SETTINGS, *_FIELDS, "allow_debug_variables"}
    if not isinstance(overrides, Mapping):
        raise ProfileError(
            f"{OVERRIDES} is {overrides!r}", f"make it a mapping with any of: {', '.join(sorted(known))}"
        )
    for field, value in overrides.items():
        if field not in known:
            raise ProfileError(f"{OVERRIDES}.{field}: no such field", f"known: {', '.join(sorted(known))}")
        if field != "allow_debug_variables" and not isinstance(value, Mapping):
            raise ProfileError(f"{OVERRIDES}.{field}: {value!r} is no mapping", "give it as name: value")
    return {str(field): value for field, value in overrides.items()}


def _merge_settings(tuning: Document, changes: Document) -> None:
    """Put a host's own values over the profile's: a bare value, a mapping of fields, or null to take one away."""
    if "allow_debug_variables" in changes:
        tuning["allow_debug_variables"] = changes["allow_debug_variables"]
    for group in _SETTINGS:
        for key, change in changes.get(group, {}).items():
            if change is None:
                tuning[group].pop(key, None)
            elif isinstance(change, Mapping):
                tuning[group][key] = {"why": "this host's own", **change, "origin": OVERRIDES}
            else:
                tuning[group][key] = {"value": change, "why": "this host's own", "origin": OVERRIDES}

"""Additions of a host's own variables to its profiles: nodectl_overrides, and reasons for what is not supported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodectl.common.spelling import meant
from nodectl.errors import ProfileError
from nodectl.profiles import SETTINGS
from nodectl.profiles.load import Document

OVERRIDES = "nodectl_overrides"
NCCL_ENV = "nodectl_nccl_env"
ALLOW = "nodectl_allow_unsupported"
MISFIT = "nodectl_misfit"
_FIELDS = ("hardware", "stack")


def checked_reasons(reasons: Any) -> tuple[str, ...]:
    """Return the reasons given for what is not supported; ProfileError if they are no list of sentences."""
    if not isinstance(reasons, list | tuple) or not all(
        isinstance(reason, str) and reason.strip() for reason in reasons
    ):
        raise ProfileError(f"{ALLOW} is {reasons!r}", "make it a list of reasons, each a sentence: [we measure this]")
    return tuple(" ".join(reason.split()) for reason in reasons)


def misfit_allowed(value: Any) -> bool:
    """Return whether profiles of another machine are meant; ProfileError for another word than allow or refuse."""
    if value not in (None, "", "refuse", "allow"):
        raise ProfileError(f"{MISFIT} is {value!r}", "make it allow, or leave it away")
    return bool(value == "allow")


def checked_overrides(overrides: Mapping[str, Any] | None) -> Document:
    """Return the overrides; ProfileError unless each field exists and holds a mapping."""
    if overrides is None:
        return {}
    fields = {*SETTINGS, *_FIELDS, "allow_debug_variables"}
    if not isinstance(overrides, Mapping):
        raise ProfileError(
            f"{OVERRIDES} is {overrides!r}", f"make it a mapping with any of: {', '.join(sorted(fields))}"
        )
    for field, value in overrides.items():
        if field not in fields:
            raise ProfileError(
                f"{OVERRIDES}.{field}: no such field", f"{meant(str(field), fields)}known: {', '.join(sorted(fields))}"
            )
        if field != "allow_debug_variables" and not isinstance(value, Mapping):
            raise ProfileError(f"{OVERRIDES}.{field}: {value!r} is not a mapping", "give it as name: value")
    return {str(field): value for field, value in overrides.items()}


def checked_nccl_env(nccl_env: Any) -> Document:
    """Return the host's own variables of NCCL; ProfileError unless they are a mapping."""
    if nccl_env is None:
        return {}
    if not isinstance(nccl_env, Mapping):
        raise ProfileError(f"{NCCL_ENV} is {nccl_env!r}", "give it as name: value")
    return dict(nccl_env)


def merge_fields(document: Document, changes: Mapping[str, Any]) -> None:
    """Put fields over a profile's; a mapping is merged key by key, and null inside one takes its key away."""
    for field, change in changes.items():
        before = document.get(field)
        if isinstance(change, Mapping) and isinstance(before, Mapping):
            merged = {**before}
            merge_fields(merged, {key: value for key, value in change.items() if value is not None})
            gone = {key for key, value in change.items() if value is None}
            document[field] = {key: value for key, value in merged.items() if key not in gone}
        else:
            document[field] = change


def merge_settings(tuning: Document, changes: Document, origin: str = OVERRIDES) -> None:
    """Put a host's own values over the profile's: a bare value, a mapping of fields, or null to take one away.

    `origin` is the host's variable that holds them.
    """
    if "allow_debug_variables" in changes:
        tuning["allow_debug_variables"] = changes["allow_debug_variables"]
    for group in SETTINGS:
        for key, change in changes.get(group, {}).items():
            if change is None:
                tuning[group].pop(key, None)
            elif isinstance(change, Mapping):
                tuning[group][key] = {"why": "this host's own", **change, "origin": origin}
            else:
                tuning[group][key] = {"value": change, "why": "this host's own", "origin": origin}

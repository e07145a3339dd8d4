"""Choices of a space that change something: a value that hosts keep, or an option that does nothing, is not tried."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodectl.model.host import Host
from nodectl.model.trial import Side
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.trials.space import flag_words, setting_label
from nodectl.workloads.meaning import OFF, RULES, flag, without_meaning

# of each key its value, and whether it can be written at all: in a host that is a namespace many cannot
_READ = r"""
for key; do
    file=/proc/sys/$(printf %s "$key" | tr . /)
    [ -r "$file" ] || continue
    can=w
    case $(stat -c %A "$file") in ??w*) ;; *) can=r ;; esac
    [ "$(id -u)" != 0 ] || [ -w "$file" ] || can=r
    printf '%s\t%s\t%s\n' "$key" "$can" "$(cat "$file")"
done
"""
_READ_S = 15.0

# key → its value, and whether it can be written
Live = Mapping[str, tuple[str, bool]]
# live value, wanted value, never lowered
Holds = Callable[[str, str, bool], bool]


def keys_of(sides: Sequence[Side]) -> tuple[str, ...]:
    """Return the kernel settings that any of these sides tries."""
    return tuple(dict.fromkeys(key for side in sides for key in (side.overrides or {}).get("sysctl", {})))


def read_live(transport: Transport, hosts: Sequence[Host], keys: Sequence[str], forks: int) -> dict[str, Live]:
    """{host: its values of these kernel settings}; a host that does not answer is not in it."""
    live: dict[str, Live] = {}
    if not keys:
        return live
    for host, result in fan_out(
        hosts, lambda host: transport.run(host, ["sh", "-c", _READ, "sh", *keys], timeout_s=_READ_S), forks
    ):
        if result.ok:
            rows = [line.split("\t", 2) for line in result.stdout.splitlines() if line.count("\t") >= 2]
            live[host.name] = {key: (" ".join(value.split()), can == "w") for key, can, value in rows}
    return live


def effective(
    sides: Sequence[Side], in_force: Collection[str], live: Mapping[str, Live], holds: Holds
) -> tuple[list[Side], list[str]]:
    """Return the sides without kernel settings that no host would take, and why; those left empty are out.

    `in_force` are the kernel settings that the baseline sets: a trial can lower those again.
    """
    kept: dict[object, Side] = {}
    reasons: dict[str, None] = {}
    for side in sides:
        settings = (side.overrides or {}).get("sysctl", {})
        idle = {
            key: why
            for key, value in settings.items()
            if key not in in_force and (why := _idle(key, value, live, holds))
        }
        reasons.update(dict.fromkeys(f"left out: {setting_label(key, settings[key])}: {idle[key]}" for key in idle))
        kept_side = _without(side, idle)
        if not idle or kept_side.overrides or kept_side.run_with:
            kept.setdefault((repr(kept_side.overrides), repr(kept_side.run_with)), kept_side)
    return list(kept.values()), list(reasons)


def _idle(key: str, value: Any, live: Mapping[str, Live], holds: Holds) -> str:
    """Return why no host would take it; "" where one would, or where nobody knows."""
    fields = value if isinstance(value, Mapping) else {"value": value}
    wanted, never_lower = " ".join(str(fields.get("value")).split()), bool(fields.get("never_lower", True))
    there = [values.get(key) for values in live.values()]
    if not there or None in there:
        return ""
    present = [value for value in there if value is not None]
    if all(holds(has, wanted, never_lower) for has, _ in present):
        return f"every host has {' or '.join(dict.fromkeys(has for has, _ in present))} already, which it keeps"
    if not any(writable or holds(has, wanted, never_lower) for has, writable in present):
        return "no host can set it"
    return ""


def _without(side: Side, idle: Mapping[str, str]) -> Side:
    if not idle:
        return side
    overrides: dict[str, Any] = {**(side.overrides or {})}
    names = {setting_label(key, overrides["sysctl"][key]) for key in idle}
    overrides["sysctl"] = {key: value for key, value in overrides["sysctl"].items() if key not in idle}
    settings = {group: values for group, values in overrides.items() if values}
    if settings.keys() <= {"allow_debug_variables"}:
        settings = {}
    return replace(side, label=_label(side.label, lambda part: part not in names), overrides=settings)


def meaningful(sides: Sequence[Side], arguments: Sequence[str]) -> tuple[list[Side], list[str]]:
    """Return the sides whose workload options do something beside `arguments` and each other, and why others do not."""
    asked = values_of(arguments)
    # a preset may set any of them
    others = asked if "preset" in asked else {**OFF, **asked}
    usual = {**{name: rule.off for rule in RULES for name in rule.options}, **others}
    kept: dict[object, Side] = {}
    reasons: dict[str, None] = {}
    for side in sides:
        given = values_of(flag_words(side.run_with))
        if idle := without_meaning(given, others):
            name, needs = next(iter(idle.items()))
            why = f"{flag(name, given[name])} does nothing there, it goes with {needs}"
            reasons[f"left out: {side.label}: {why}"] = None
            continue
        kept_side = side if "preset" in asked else _changed(side, usual)
        if kept_side.run_with or kept_side.overrides:
            kept.setdefault((repr(kept_side.overrides), repr(kept_side.run_with)), kept_side)
        else:
            reasons[f"left out: {side.label}: it is the baseline"] = None
    return list(kept.values()), list(reasons)


def _changed(side: Side, usual: Mapping[str, Any]) -> Side:
    """Return the side without the options that are as they would be anyhow."""
    same = {
        flag: name
        for flag, value in side.run_with.items()
        for name, given in values_of([f"{flag}={value}" if value else flag]).items()
        if name in usual and usual[name] == given
    }
    run_with = {flag: value for flag, value in side.run_with.items() if flag not in same}
    return replace(
        side, label=_label(side.label, lambda part: part.partition("=")[0] not in same.values()), run_with=run_with
    )


def _label(label: str, stays: Callable[[str], bool]) -> str:
    """Return the label of a point of a space without some of its settings."""
    parts = [", ".join(setting for setting in part.split(", ") if stays(setting)) for part in label.split("; ")]
    return "; ".join(part for part in parts if part)


def values_of(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the options of a command line by their destinations: --x=1, --x 1, --x and --no-x."""
    values: dict[str, Any] = {}
    for word, following in zip(arguments, [*arguments[1:], "--"], strict=False):
        if not word.startswith("--"):
            continue
        name, has_value, value = word.removeprefix("--").partition("=")
        is_off = name.startswith("no-")
        if not has_value and not is_off and not following.startswith("--"):
            has_value, value = "=", following
        key = name.removeprefix("no-").replace("-", "_")
        values[key] = _typed(value) if has_value else not is_off
    return values


def _typed(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

"""Ansible filter: findings as lines for people, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

# as nodectl.model.status: the worst first
ORDER = ("failed", "unknown", "warning", "ok", "skipped")

DOCUMENTATION = r"""
name: finding_lines
short_description: Findings as lines for people
description: The findings of the given statuses, the worst first, each with what was expected, what is, and what to do.
author: The nodectl authors
positional: statuses
options:
  _input: {description: Findings., type: list, elements: dict, required: true}
  statuses: {description: Which statuses to show., type: list, elements: str, required: true}
"""
EXAMPLES = r"""
lines: "{{ kernel_settings_verified.findings | finding_lines(['failed']) }}"
"""
RETURN = r"""
_value: {description: One line a finding., type: list, elements: str}
"""


def finding_lines(findings: Iterable[Mapping[str, str]], statuses: Sequence[str]) -> list[str]:
    """Lines of those findings whose status is asked for."""
    chosen = [found for found in findings if found["status"] in statuses]
    return [_line(found) for found in sorted(chosen, key=lambda found: ORDER.index(found["status"]))]


def _line(found: Mapping[str, str]) -> str:
    name = ": ".join(filter(None, (found["check"], found.get("subject", ""))))
    parts = [f"{found['status']} {name}: {found.get('actual', '')}"]
    if found.get("expected"):
        parts.append(f"expected {found['expected']}")
    if found.get("remedy"):
        parts.append(f"try: {found['remedy']}")
    return "; ".join(parts)


class FilterModule:
    """Where Ansible looks for filters."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Name and function."""
        return {"finding_lines": finding_lines}

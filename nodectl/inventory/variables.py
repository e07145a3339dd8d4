"""A host's variables as other modules meet them: rendered when they are asked for, without Ansible's own types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class HostVariables(Mapping[str, object]):
    """A host's variables; templates are rendered and vaulted values decrypted when they are asked for."""

    def __init__(
        self,
        name: str,
        raw: Mapping[str, Any],
        render: Callable[[str, Mapping[str, Any], object], object],
    ) -> None:
        self._name, self._raw, self._render = name, raw, render
        self._rendered: dict[str, object] = {}

    def __getitem__(self, key: str) -> object:
        if key not in self._rendered:
            value = self._raw[key]
            rendered = self._render(self._name, self._raw, value) if _needs_rendering(value) else value
            self._rendered[key] = _plain(rendered)
        return self._rendered[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def _needs_rendering(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(_needs_rendering(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_needs_rendering(item) for item in value)
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return not (value is None or isinstance(value, int | float))


def _plain(value: object) -> object:
    """Without Ansible's tags, which no other module is to meet."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)  # type: ignore[call-overload, no-any-return, unused-ignore]
    return str(value)

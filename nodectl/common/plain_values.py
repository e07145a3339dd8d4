"""Ansible's values as plain ones: text, numbers, lists and mappings, without its tags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def plain_value(value: object) -> Any:
    """Through JSON; TypeError for what JSON has not."""
    return json.loads(json.dumps(value, default=_text))


def _text(value: object) -> str:
    # up to ansible-core 2.18 a vaulted text is a sequence of its own kind, and no str
    if isinstance(value, Sequence):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")

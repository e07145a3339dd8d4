"""Text that hosts told, made harmless: as HTML, and as JSON inside a script element."""

from __future__ import annotations

import html
import json


def visible(text: str) -> str:
    r"""The text with control characters, direction overrides and lone surrogates spelled out (`\x1b`)."""
    return "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)


def escaped(text: str) -> str:
    """For the content of an element and for an attribute in double quotes."""
    return html.escape(visible(text), quote=True)


def script_json(value: object) -> str:
    """JSON that ends no script element and begins no comment in one, whatever its strings hold."""
    text = json.dumps(_visible(value), separators=(",", ":"), allow_nan=False)
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _visible(value: object) -> object:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _visible(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(member) for member in value]
    # JSON has no infinity; a host may print one
    return None if isinstance(value, float) and value - value != 0 else value

"""Documents in a bounded number of bytes: long texts are cut, and nothing is dropped."""

import json
from functools import partial
from typing import Any, Callable, Optional

_CHARS = (2000, 500, 150, 40)


def fitted(document: Callable[[Callable[[Any], Any]], Any], most_bytes: int, **style: Any) -> bytes:
    """Return a document as JSON in at most so many bytes, as far as cutting its texts makes it that short.

    `document(cut)` makes it, and calls `cut` on the parts of which texts may be cut; a character takes up to 12 bytes.
    """
    data = b""
    for chars in (None, *_CHARS):
        data = json.dumps(document(partial(_cut, chars)), **style).encode()
        if len(data) <= most_bytes:
            break
    return data


def _cut(chars: Optional[int], value: Any) -> Any:
    if chars is None:
        return value
    if isinstance(value, str):
        return value if len(value) <= chars else f"{value[:chars]}…"
    if isinstance(value, dict):
        return {key: _cut(chars, item) for key, item in value.items()}
    return [_cut(chars, item) for item in value] if isinstance(value, (list, tuple)) else value

"""Documents that nodectl keeps: their ids, and their plain data as values of dataclasses."""

from __future__ import annotations

import json
import re
import secrets
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeVar

T = TypeVar("T")


def new_id(now: datetime) -> str:
    """Make a new id: ids sort by time, and two of the same second differ."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def values_of(kind: type[T], rows: object, *, extra: Literal["forbid", "ignore"] = "forbid") -> tuple[T, ...]:
    """`rows` of plain data as values of a dataclass, or of another type; ValueError for the first that is not as that.

    It says the path there. NaN and infinity are no numbers. Of text, what is no character (bytes of a file's name that
    were no UTF-8) is spelled out.
    """
    from pydantic import ValidationError

    text = re.sub("[\ud800-\udfff]", lambda match: f"\\\\u{ord(match[0]):04x}", json.dumps(rows, ensure_ascii=False))
    try:
        adapter: Any = _adapter
        values: tuple[T, ...] = adapter(kind, extra).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return values


@lru_cache(maxsize=64)
def _adapter(kind: Any, extra: Literal["forbid", "ignore"]) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    # only in a container does pydantic take settings for a dataclass
    return TypeAdapter(tuple[kind, ...], config=ConfigDict(strict=True, extra=extra, allow_inf_nan=False))

"""Documents that nodectl keeps: their ids, and their plain data as values of dataclasses."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from typing import Literal, TypeVar

T = TypeVar("T")


def new_id(now: datetime) -> str:
    """A new id: ids sort by time, and two of the same second differ."""
    return f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def values_of(kind: type[T], rows: object, *, extra: Literal["forbid", "ignore"] = "forbid") -> tuple[T, ...]:
    """`rows` of plain data as values of a dataclass; ValueError with the path of the first that is not as its type."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    # only in a container does pydantic take settings for a dataclass
    adapter = TypeAdapter(tuple[kind, ...], config=ConfigDict(strict=True, extra=extra))  # type: ignore[valid-type]
    try:
        return adapter.validate_json(json.dumps(rows))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

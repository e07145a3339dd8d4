"""`[[notify]]` of nodectl.toml: the receivers, held against what their forms need, and their secrets from files."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nodectl.errors import UsageError
from nodectl.payload.notify.deliver import read_secret

PAGE = "see docs/notify.md"
Event = Literal["job-end", "job-stall", "job-restart", "host-failed", "acceptance", "certificate"]
EVENTS: tuple[Event, ...] = ("job-end", "job-stall", "job-restart", "host-failed", "acceptance", "certificate")
_FILES = {"url_file", "token_file"}
_Word = Annotated[str, Field(min_length=1, pattern=r"^[!-~]+$")]
_Path = Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]
_Address = Annotated[str, Field(pattern=r"^[^\s,<>@\x00-\x1f]+@[^\s,<>@\x00-\x1f]+$")]
# of each form: what it must have, and what it may have beside that
_ADDRESS = {"url", "url_file"}
_NEEDS: dict[str, tuple[set[str], set[str]]] = {
    **dict.fromkeys(("json", "ntfy"), (set(), {*_ADDRESS, "token_file"})),
    "slack": ({"url_file"}, set()),
    "matrix": ({"room", "token_file"}, _ADDRESS),
    "mail": ({"to"}, {"from", "sendmail"}),
    "command": ({"argv"}, set()),
}
_COMMON = {"name", "form", "on", "on_node", "certificate_days"}


class Receiver(BaseModel):
    """One receiver; `on_node`: its files are read where it is told from, and not on this machine at the launch."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True)

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")]
    form: Literal["json", "ntfy", "slack", "matrix", "mail", "command"] = "json"
    on: Annotated[tuple[Event, ...], Field(min_length=1)] = EVENTS
    url: _Word | None = None
    url_file: _Path | None = None
    token_file: _Path | None = None
    on_node: bool = False
    room: _Word | None = None
    argv: Annotated[tuple[Annotated[str, Field(pattern=r"^[^\x00]*$")], ...], Field(min_length=1)] | None = None
    to: Annotated[tuple[_Address, ...], Field(min_length=1)] | None = None
    sender: _Address | None = Field(default=None, alias="from")
    sendmail: _Path | None = None
    certificate_days: Annotated[int, Field(ge=8, le=36500)] = 90

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = {"from" if key == "sender" else key for key in self.model_fields_set} - _COMMON
        needs, may = _NEEDS[self.form]
        if lacking := sorted(needs - given):
            raise ValueError(f"form {self.form} needs {', '.join(lacking)}")
        if strange := sorted(given - needs - may):
            raise ValueError(f"form {self.form} has no {', '.join(strange)}")
        if may >= _ADDRESS and len(given & _ADDRESS) != 1:
            raise ValueError("give its address, once: url, or url_file where the address is a secret")
        if self.url is not None:
            check_url(self.url, self.form, secret=self.token_file is not None)
        return self


def check_url(url: str, form: str, *, secret: bool) -> None:
    """Raise ValueError, which does not name the address, where it cannot be used, or would give away secrets."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("it is no address") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("an address begins with https://HOST")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a password in an address is seen by many: name a token_file")
    if form == "ntfy" and (not parts.path.strip("/") or parts.query):
        raise ValueError("an address of ntfy ends with the topic: https://ntfy.sh/TOPIC")
    if secret and parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError("a secret would travel unencrypted: use https")


def read_receivers(given: object, path: Path) -> tuple[Receiver, ...]:
    """Return the receivers of a settings file, () for none; UsageError that says which is wrong, and what."""
    if given is None:
        return ()
    if not isinstance(given, list):
        raise UsageError(f"{path}: notify is no list", f"begin each receiver with [[notify]]; {PAGE}")
    receivers: list[Receiver] = []
    for number, one in enumerate(given, start=1):
        named = f" ({one['name']})" if isinstance(one, dict) and isinstance(one.get("name"), str) else ""
        try:
            receiver = Receiver.model_validate(one)
            files = {} if receiver.on_node else receiver.model_dump(include=_FILES, exclude_none=True)
            homes = {key: os.path.expanduser(name) for key, name in files.items()}  # noqa: PTH111 - takes a `~nobody`
            places = {key: str((path.parent / home).absolute()) for key, home in homes.items()}
            receivers.append(receiver.model_copy(update=places))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            text = "no such key" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
            raise UsageError(
                f"{path}: receiver {number}{named} of notify: {where and where + ': '}{text}", PAGE
            ) from None
    names = [one.name for one in receivers]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{path}: notify has {', '.join(twice)} twice", "give each receiver a name of its own")
    return tuple(receivers)


def documents(receivers: Sequence[Receiver], *, travel: bool) -> list[dict[str, Any]]:
    """Return the receivers as senders read them, files by their paths; with `travel` what these files hold instead.

    UsageError for a file that cannot be read, that others may read, or that holds no secret.
    """
    rows = []
    for one in receivers:
        row = one.model_dump(exclude_none=True, exclude={"on_node", "certificate_days"}, by_alias=True, mode="json")
        for key in _FILES & row.keys() if travel and not one.on_node else ():
            row[key.removesuffix("_file")] = _read(one, key, Path(row.pop(key)))
        rows.append(row)
    return rows


def _read(receiver: Receiver, key: str, path: Path) -> str:
    where = f"{key} of notify's receiver {receiver.name}: {path}"
    try:
        mode = path.stat().st_mode
        secret = read_secret(str(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it must hold one word of plain letters"
        raise UsageError(f"{where}: {reason}", PAGE) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"{where}: others may read it (mode {stat.S_IMODE(mode):04o})", f"chmod 600 {path}")
    if key == "url_file":
        try:
            check_url(secret, receiver.form, secret=True)
        except ValueError as error:
            raise UsageError(f"{where}: {error}", PAGE) from None
    return secret

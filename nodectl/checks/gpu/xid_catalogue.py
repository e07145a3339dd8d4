"""What Xids mean: NVIDIA's actions and where operators differ, as data in xid.yml, and a site's own word on top."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from nodectl.checks.check import ACTIONS
from nodectl.model.status import Status

STATUSES = ("ok", "warning", "failed")
_FILE = Path(__file__).with_name("xid.yml")


@dataclass(frozen=True, slots=True)
class Xid:
    """One number: its meaning, how bad it is, and what to do; `others` says where catalogues disagree."""

    title: str
    status: str
    action: str
    remedy: str
    nvidia: str = ""
    others: str = ""

    @property
    def severity(self) -> Status:
        """As findings have it."""
        return Status(self.status)

    @property
    def source(self) -> str:
        """Whose word the action is, and who says otherwise."""
        return "; ".join(filter(None, [f"NVIDIA: {self.nvidia}" if self.nvidia else "", self.others]))


UNKNOWN = Xid(
    title="not in the catalogue",
    status="warning",
    action="none",
    remedy="look its number up in NVIDIA's list of Xid errors, and name it in nodectl_health: {xid: …}",
)
_FIELDS = frozenset(each.name for each in fields(Xid))


@cache
def catalogue() -> Mapping[int, Xid]:
    """All numbers of xid.yml."""
    import yaml

    read = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    found = {number: Xid(**group["entry"]) for group in read["groups"] for number in group["numbers"]}
    return {**found, **{number: Xid(**entry) for number, entry in read["xids"].items()}}


def meaning(number: int, site: Mapping[Any, Any] | None = None) -> Xid:
    """The catalogue's entry with the site's fields over it; a number that nobody names is a warning."""
    known = catalogue().get(number, UNKNOWN)
    own = _own(number, site)
    return replace(known, **{**own, "nvidia": known.nvidia, "others": "set by this site"}) if own else known


def _own(number: int, site: Mapping[Any, Any] | None) -> dict[str, str]:
    given = (site or {}).get(number, (site or {}).get(str(number)))
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}


def check_site_xid(site: object) -> None:
    """ValueError with the path of the first thing in a site's catalogue that cannot be."""
    if not isinstance(site, Mapping):
        raise ValueError("xid: give a number and its fields, as in {63: {status: failed, action: drain}}")
    for number, entry in site.items():
        where = f"xid.{number}"
        if not str(number).isdigit():
            raise ValueError(f"{where}: {number!r} is no number of an Xid")
        if not isinstance(entry, Mapping):
            raise ValueError(f"{where}: give its fields, as in {{status: failed, action: drain}}")
        unknown = sorted(set(map(str, entry)) - _FIELDS | {"nvidia", "others"} & set(map(str, entry)))
        if unknown:
            raise ValueError(f"{where}.{unknown[0]}: no such field; there are title, status, action and remedy")
        for name, allowed in (("status", STATUSES), ("action", ACTIONS)):
            if name in entry and entry[name] not in allowed:
                raise ValueError(f"{where}.{name}: {entry[name]!r} is none of {', '.join(allowed)}")

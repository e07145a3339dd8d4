"""Moments of the past as people write them: `15m` ago, `2026-11-23T04:00`, or `04:00` of today or yesterday."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from nodectl.errors import UsageError

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")


def seconds_ago(text: str, now: datetime | None = None) -> float:
    """How long ago that was; UsageError for what is no such moment, or still to come."""
    now = now or datetime.now().astimezone()
    if ago := _AGO.fullmatch(text):
        return float(ago[1]) * _UNITS_S[ago[2]]
    try:
        moment = _moment(text, now)
    except ValueError:
        raise UsageError(f"--since {text}: not a time", "say 90s, 15m, 2h, 1d, 2026-11-23T04:00 or 04:00") from None
    if moment > now:
        raise UsageError(f"--since {text}: that is still to come")
    return (now - moment).total_seconds()


def _moment(text: str, now: datetime) -> datetime:
    """In the zone of `now` where it says no other."""
    if not _CLOCK.fullmatch(text):
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
    hour, minute, *second = map(int, text.split(":"))
    today = now.replace(hour=hour, minute=minute, second=second[0] if second else 0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)

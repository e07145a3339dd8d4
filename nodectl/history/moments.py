"""Moments as text: local time with its offset, as people and programs both read it."""

from __future__ import annotations

import time


def iso(seconds: float) -> str:
    """`2026-11-20T14:30:05+0100`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))

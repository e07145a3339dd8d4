"""What stands beside a figure of a GPU or a processor in the table: how it was measured, and how it was then."""

from __future__ import annotations

from collections.abc import Mapping

from nodectl.model.measurement import Measurement

DEVICE_PROBES = ("gemm", "hbm", "p2p", "h2d", "sdc")


def device_conditions(measurement: Measurement) -> str:
    """The few that matter most."""
    given = measurement.conditions
    words = {
        "gemm": (given.get("precision"), given.get("best_shape"), "slowest" if given.get("slowest") else None),
        "hbm": ("read and written", f"{given.get('array_mib')} MiB"),
        "p2p": (given.get("connection"), given.get("link"), _peer(given)),
        "h2d": (f"{given.get('memory')} memory", given.get("link")),
        "sdc": (f"{given.get('rounds')} rounds", f"{given.get('compared_with')} to compare with"),
    }[measurement.probe]
    return ", ".join(str(word) for word in (*words, _device(given), *_seen(given)) if word)


def _peer(given: Mapping[str, object]) -> str | None:
    return "no peer access" if given.get("can_access_peer") is False else None


def _device(given: Mapping[str, object]) -> str | None:
    device = given.get("device")
    return f"{given.get('threads')} processors" if device == "cpu" else str(device) if device else None


def _seen(given: Mapping[str, object]) -> list[str]:
    clock, heat, reasons = given.get("clock_mhz"), given.get("temperature_c"), given.get("throttled")
    words = [f"{clock:.0f} MHz"] if isinstance(clock, int | float) else []
    words += [f"{heat:.0f} °C"] if isinstance(heat, int | float) else []
    return words + ([f"limited by {', '.join(map(str, reasons))}"] if isinstance(reasons, list) and reasons else [])

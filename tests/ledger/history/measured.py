"""Measurements for tests of the history."""

from nodectl.model.measurement import Measurement


def memory(host: str, value: float, spread: float | None = 0.02, kernel: str = "triad") -> Measurement:
    """As the memory probe gives it."""
    conditions = {"kernel": kernel, "method": "torch", "threads": 8, "values_gb_s": [value]}
    return Measurement("memory", (host,), value, "GB/s", host, None, spread, conditions)


def tcp(sender: str, receiver: str, value: float, spread: float | None = 0.02, streams: int = 1) -> Measurement:
    """As the tcp probe gives it."""
    conditions = {"streams": streams, "interfaces": ["eth0", "eth0"], "retransmits": 3, "mtu": [1500, 1500]}
    return Measurement("tcp", (sender, receiver), value, "Gbit/s", f"{sender} -> {receiver}", 9.0, spread, conditions)

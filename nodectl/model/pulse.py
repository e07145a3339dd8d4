"""How a running job does on a host at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

# a GPU that waits in a collective counts as used, and draws little
_BUSY_PERCENT, _IDLE_SHARE = 90.0, 0.3


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a host together; the power of those that tell it."""

    count: int
    use_percent: float | None
    power_w: float | None
    limit_w: float | None

    @property
    def wait(self) -> bool:
        """All are in use, and draw little: they hardly compute."""
        if self.use_percent is None or not self.power_w or not self.limit_w:
            return False
        return self.use_percent >= _BUSY_PERCENT and self.power_w < _IDLE_SHARE * self.limit_w


@dataclass(frozen=True, slots=True)
class Pulse:
    """One host at one moment; rates are from the look before to this one, None for the first."""

    host: str
    state: str
    attempt: int = 1
    alive: bool = False
    step: int | None = None
    total: int | None = None
    loss: str | None = None
    output_age_s: float | None = None
    gpus: Gpus | None = None
    network: Mapping[str, float] | None = None
    steps_per_s: float | None = None
    in_bytes_s: float | None = None
    out_bytes_s: float | None = None
    time_s: float = 0.0
    waits_s: float = 0.0
    problem: str = ""

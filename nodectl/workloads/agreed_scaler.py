"""Loss scaling for fp16 where no rank has all gradients: what one finds too large, all leave out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Callable

_FIRST = 2.0**16
_GROWTH = 2.0
_BACKOFF = 0.5
_GOOD_STEPS = 2000


class AgreedScaler:
    """A GradScaler with torch's numbers and state, for gradients of which each rank has its own part.

    `own_part` gives a gradient's part on this rank, to be changed in place.
    """

    def __init__(self, enabled: bool, device: torch.device, own_part: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._enabled, self._device, self._own_part = enabled, device, own_part
        self._scale = _FIRST
        self._good_steps = 0
        self._overflowed = False

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss for the backward pass."""
        return loss * self._scale if self._enabled else loss

    def unscale_(self, optimizer: Any) -> None:
        """Put the true gradients in place of the scaled; every rank must call it."""
        if not self._enabled:
            return
        found = torch.zeros((), device=self._device)
        for each in (each for group in optimizer.param_groups for each in group["params"] if each.grad is not None):
            part = self._own_part(each.grad).mul_(1 / self._scale)
            found += (~torch.isfinite(part)).any().to(self._device)
        dist.all_reduce(found)
        self._overflowed = bool(found.item() > 0)

    def step(self, optimizer: Any) -> None:
        """Take the optimizer's step, unless a gradient of any rank is not finite."""
        if not self._overflowed:
            optimizer.step()

    def update(self) -> None:
        """Half the scale after a step that was left out; twice after a long row of good ones."""
        if not self._enabled:
            return
        self._good_steps = 0 if self._overflowed else self._good_steps + 1
        if self._overflowed:
            self._scale *= _BACKOFF
        elif self._good_steps == _GOOD_STEPS:
            self._scale, self._good_steps = self._scale * _GROWTH, 0

    def state_dict(self) -> dict[str, Any]:
        """Return it as GradScaler's."""
        if not self._enabled:
            return {}
        numbers = {"growth_factor": _GROWTH, "backoff_factor": _BACKOFF, "growth_interval": _GOOD_STEPS}
        return {"scale": self._scale, **numbers, "_growth_tracker": self._good_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the numbers that `state_dict` gave."""
        if self._enabled and state:
            self._scale, self._good_steps = float(state["scale"]), int(state["_growth_tracker"])

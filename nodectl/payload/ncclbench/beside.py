"""What lies beside this folder: on a node there is no nodectl around it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING or __package__ != "ncclbench":
    from nodectl.payload.endpoint import addresses
    from nodectl.payload.membench import machine
else:
    from endpoint import addresses
    from membench import machine

__all__ = ["addresses", "machine"]

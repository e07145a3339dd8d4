"""Faults on demand: the ways in which a lab host can be broken, and how each is undone."""

from nodectl.lab.faults.base import Fault, Scene
from nodectl.lab.faults.catalogue import FAULTS
from nodectl.lab.faults.engine import break_host, heal_hosts

__all__ = ["FAULTS", "Fault", "Scene", "break_host", "heal_hosts"]

"""Faults on demand: the ways in which a lab host can be broken, and how each is undone."""

from nodectl.lab.faults.base import Fault, Scene
from nodectl.lab.faults.engine import FAULTS, break_host, heal_hosts, kinds_document, kinds_table

__all__ = ["FAULTS", "Fault", "Scene", "break_host", "heal_hosts", "kinds_document", "kinds_table"]

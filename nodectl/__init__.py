"""nodectl: from bare GPU boxes to a training job that is proven fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from nodectl.transport.connection import CheckedGroup

try:
    from nodectl._version import __version__ as __version__
except ModuleNotFoundError:  # a checkout that nothing was built of: what its Python has installed, or nothing
    from importlib.metadata import PackageNotFoundError, version

    try:
        __version__ = version("nodectl")
    except PackageNotFoundError:
        __version__ = "0.0.0"


def fleet(*inventories: str | Path, limit: str | None = None, forks: int | None = None) -> CheckedGroup:
    """Return a fabric.Group of the hosts of Ansible inventories, for scripts of your own; host keys are checked.

    Without an inventory, ansible.cfg or ANSIBLE_INVENTORY name it. `limit` is an Ansible host pattern. Close the group,
    or use it in a `with` statement. Raises InventoryError if an inventory cannot be read or no host matches.
    """
    from nodectl.transport.connection import CheckedGroup
    from nodectl.transport.fanout import FORKS
    from nodectl.transport.inventory import read_inventory

    return CheckedGroup(
        read_inventory([str(path) for path in inventories]).hosts(limit), FORKS if forks is None else forks
    )

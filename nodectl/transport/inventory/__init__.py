"""An Ansible inventory as hosts, read by Ansible itself; and Ansible's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodectl.errors import InventoryError

if TYPE_CHECKING:
    from nodectl.common.access import Access
    from nodectl.transport.inventory.read import Inventory
    from nodectl.transport.inventory.settings import Settings


def read_inventory(sources: Sequence[str], access: Access | None = None) -> Inventory:
    """Read the hosts of `sources`, by default of what ansible.cfg or ANSIBLE_INVENTORY say; see Inventory.read."""
    with _ansible():
        from nodectl.transport.inventory.read import Inventory
    return Inventory.read(sources, access)


def read_settings() -> Settings:
    """Return what Ansible's settings are, and where they stand; InventoryError where Ansible refuses them."""
    with _ansible():
        from nodectl.transport.inventory.settings import settings

        return settings()


@contextmanager
def _ansible() -> Iterator[None]:
    """Have Ansible imported as it should be."""
    from nodectl.common.paths import state_dir

    # Ansible makes a folder for temporary files as soon as it is imported: in our state, not in ~/.ansible
    os.environ.setdefault("ANSIBLE_LOCAL_TEMP", str(state_dir() / "ansible"))
    try:
        yield
    except Exception as error:
        # Ansible reads its settings when it is imported
        if type(error).__module__ == "ansible.errors":
            reason = " ".join(str(error).split())
            raise InventoryError(f"Ansible's own settings: {reason}", "correct the file or the variable") from error
        raise

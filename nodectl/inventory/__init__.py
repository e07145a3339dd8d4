"""An Ansible inventory as hosts, read by Ansible itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodectl.errors import InventoryError

if TYPE_CHECKING:
    from nodectl.common.access import Access
    from nodectl.inventory.read import Inventory


def read_inventory(sources: Sequence[str], access: Access | None = None) -> Inventory:
    """The hosts of `sources`, by default of what ansible.cfg or ANSIBLE_INVENTORY say; see Inventory.read."""
    from nodectl.common.paths import state_dir

    # Ansible makes a folder for temporary files as soon as it is imported: in our state, not in ~/.ansible
    os.environ.setdefault("ANSIBLE_LOCAL_TEMP", str(state_dir() / "ansible"))
    from nodectl.inventory.shipped_yaml import keep_parsed

    keep_parsed()
    try:
        from nodectl.inventory.read import Inventory
    except Exception as error:
        # Ansible reads its settings when it is imported
        if type(error).__module__ == "ansible.errors":
            words = " ".join(str(error).split())
            raise InventoryError(f"Ansible's own settings: {words}", "correct the file or the variable") from error
        raise
    return Inventory.read(sources, access)

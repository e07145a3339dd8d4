"""An Ansible inventory as hosts, read by Ansible itself; and Ansible's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nodectl.common.paths import refuse_open
from nodectl.errors import InventoryError
from nodectl.model.host import Host
from nodectl.transport.inventory.here import NAME, environment, inventory_of_here, lists_here, only_here, variables

if TYPE_CHECKING:
    from nodectl.common.access import Access
    from nodectl.transport.inventory.read import Inventory, Settings


class Here:
    """This machine as an inventory that is made without Ansible, whose start takes longer than a look at a machine."""

    is_here = True

    def __init__(self) -> None:
        self.sources = (inventory_of_here(),)

    def hosts(self, limit: str | None = None) -> tuple[Host, ...]:
        """Return this machine; InventoryError if the pattern is of others."""
        if limit is None or limit in ("all", "*") or lists_here(limit):
            known = {**variables(), "pytorch_venv": environment()}
            return (Host(name=NAME, address=NAME, connection="local", variables=known),)
        with _ansible():
            from nodectl.transport.inventory.read import Inventory
        return Inventory.read(self.sources).hosts(limit)

    def names(self, limit: str | None = None) -> tuple[str, ...]:
        """Return its name."""
        return tuple(host.name for host in self.hosts(limit))


def read_inventory(sources: Sequence[str], access: Access | None = None) -> Inventory | Here:
    """Read the hosts of `sources`, by default of what ansible.cfg or ANSIBLE_INVENTORY say; see Inventory.read."""
    if not sources and os.environ.get("ANSIBLE_INVENTORY") == "":  # Ansible would read the current folder
        raise InventoryError("ANSIBLE_INVENTORY is empty", "set it to the path of an inventory, or unset it")
    if only_here(sources, access):
        return Here()
    with _ansible():
        from nodectl.transport.inventory.read import Inventory
    return Inventory.read(sources, access)


def read_settings() -> Settings:
    """Return what Ansible's settings are, and where they stand; InventoryError where Ansible refuses them."""
    with _ansible():
        from nodectl.transport.inventory.read import settings

        return settings()


@contextmanager
def _ansible() -> Iterator[None]:
    from nodectl.common.paths import state_dir

    refuse_settings_of_others()
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


_RUNS_HERE = "what it says runs programs on this machine"
_FOLDERS = ("group_vars", "host_vars", "profiles")


def refuse_of_others(paths: Iterable[Path]) -> None:
    """Raise UsageError for a path in the current folder that another login owns or may write, or a file in it."""
    here = Path.cwd()
    for path in dict.fromkeys(Path(os.path.abspath(path.expanduser())) for path in paths):  # noqa: PTH100
        if os.path.lexists(path) and any(each.is_relative_to(here) for each in (path, Path(os.path.realpath(path)))):
            refuse_open(path, _RUNS_HERE, whole=True)


def refuse_settings_of_others() -> None:
    """Raise UsageError for such an ansible.cfg; before Ansible is imported, which reads it."""
    path = Path(os.environ.get("ANSIBLE_CONFIG") or "ansible.cfg")
    refuse_of_others([path / "ansible.cfg" if path.is_dir() else path])


def refuse_sources_of_others(sources: Sequence[str]) -> None:
    """Raise UsageError for such an inventory, variables, profiles, and plug-ins and vault programs of ansible.cfg."""
    paths = [Path(source) for source in sources if "," not in source]
    folders = [Path(), *(path.parent for path in paths)]
    refuse_of_others([*paths, *(folder / name for folder in folders for name in _FOLDERS), *_configured()])


def _configured() -> Iterator[Path]:
    from ansible import constants

    for name, definition in constants.config.get_configuration_definitions().items():
        if definition.get("type") == "pathspec":
            yield from map(Path, constants.config.get_config_value(name) or ())
    identities = (str(identity).rpartition("@")[2] for identity in constants.DEFAULT_VAULT_IDENTITY_LIST or ())
    yield from (Path(name) for name in (*identities, constants.DEFAULT_VAULT_PASSWORD_FILE) if name)

"""The Ansible inventory as hosts: the only place that knows Ansible's loader, its patterns and how its errors read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from ansible import constants
from ansible.errors import AnsibleError
from ansible.inventory import manager as ansible_manager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.manager import VariableManager

from nodectl.errors import InventoryError
from nodectl.inventory.errors import Listener, message
from nodectl.inventory.variables import HostVariables
from nodectl.model.host import Host
from nodectl.transport.target import options_of

# where several names say the same, Ansible lets the last one win
_ADDRESS = ("ansible_host", "ansible_ssh_host")
_PORT = ("ansible_port", "ansible_ssh_port")
_USER = ("ansible_user", "ansible_ssh_user")
_SSH_CONNECTIONS = {"ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh"}
_LOCAL_CONNECTIONS = {"local", "ansible.builtin.local"}
# nodectl's own files beside an inventory that is a folder
_OURS = rb"^nodectl\.toml$|^profiles$"


class Inventory:
    """The hosts of one or more Ansible inventories."""

    def __init__(self, manager: Any, loader: Any, sources: tuple[str, ...]) -> None:
        self.sources = sources
        self._manager = manager
        self._loader = loader
        self._variables = VariableManager(loader=loader, inventory=manager)
        self._hostvars: Any = None

    @classmethod
    def read(cls, sources: Sequence[str]) -> Inventory:
        """Read `sources` (by default what ansible.cfg or ANSIBLE_INVENTORY say).

        Raises InventoryError with file and line where a source cannot be read, or where all of them hold no host.
        """
        resolved = tuple(_resolve(source) for source in sources or constants.DEFAULT_HOST_LIST)
        loader = DataLoader()
        _unlock_vault(loader)
        manager = _parse(loader, resolved)
        return cls(manager, loader, resolved)

    def hosts(self, limit: str | None = None) -> tuple[Host, ...]:
        """The hosts that the Ansible pattern `limit` selects, in the inventory's order."""
        try:
            with _listening() as heard:
                self._manager.subset(limit)
                found = [host for host in self._manager.get_hosts("all") if not host.implicit]
        except (AnsibleError, OSError, re.error) as error:
            raise InventoryError(f"--limit {limit}: {message(error)}", "give an Ansible host pattern") from error
        if not found:
            known = ", ".join(sorted(set(self._manager.groups) - {"all", "ungrouped"})) or "none"
            hints = "".join(f"; {text}" for text in heard.warnings if not text.startswith("Could not match"))
            raise InventoryError(
                f"no host of {_join(self.sources)} matches '{limit}'{hints}",
                f"name a host or a group (groups here: {known})",
            )
        for warning in heard.warnings:  # of a pattern of several, one part matched nothing
            heard.display.warning(warning)
        return tuple(self._host(host) for host in found)

    def _host(self, found: Any) -> Host:
        variables = HostVariables(found.name, {**_configured(), **self._all_variables(found)}, self._render)
        try:
            return _as_host(found.name, variables)
        except AnsibleError as error:
            raise InventoryError(f"host {found.name}: {message(error)}", "correct the variable") from error

    def _all_variables(self, found: Any) -> Mapping[str, Any]:
        try:
            variables: Mapping[str, Any] = self._variables.get_vars(host=found, include_hostvars=False)
        except AnsibleError as error:
            raise InventoryError(f"variables of {found.name}: {message(error)}", "correct the file it names") from error
        return variables

    def _render(self, name: str, variables: Mapping[str, Any], value: object) -> object:
        from ansible.template import Templar
        from ansible.vars.hostvars import HostVars

        if self._hostvars is None:
            self._hostvars = HostVars(self._manager, self._variables, self._loader)
        try:
            return Templar(loader=self._loader, variables={**variables, "hostvars": self._hostvars}).template(value)
        except AnsibleError as error:
            raise InventoryError(f"host {name}: {message(error)}", "define what the template uses") from error


def _as_host(name: str, variables: HostVariables) -> Host:
    address, user = _last(variables, _ADDRESS), _last(variables, _USER) or constants.DEFAULT_REMOTE_USER
    port = _last(variables, _PORT) or constants.DEFAULT_REMOTE_PORT
    host = Host(
        name=name,
        address=str(address or name),
        port=None if port is None else _port(name, port),
        user=None if user is None else str(user),
        connection=_connection(name, variables),
        variables=variables,
    )
    if host.connection == "ssh":
        options_of(host)  # an option that nodectl does not know is refused before anything runs
    return host


@lru_cache(maxsize=1)
def _configured() -> Mapping[str, str]:
    """What ansible.cfg and ANSIBLE_SSH_* say of all hosts, under the names of the variables that come before it."""
    config = constants.config
    parser = config._parsers.get(config._config_file)
    found = {"ansible_ssh_private_key_file": constants.DEFAULT_PRIVATE_KEY_FILE}
    for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
        said = parser.get("ssh_connection", name, raw=True, fallback=None) if parser else None
        found[f"ansible_{name}"] = os.environ.get(f"ANSIBLE_{name.upper()}", said)
    return {name: str(value) for name, value in found.items() if value}


def _last(variables: Mapping[str, object], names: Sequence[str]) -> object:
    return next((variables[name] for name in reversed(names) if variables.get(name) not in (None, "")), None)


def _port(name: str, value: object) -> int:
    text = str(value)
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise InventoryError(f"host {name}: ansible_port is '{text}'", "give a number from 1 to 65535")
    return int(text)


def _connection(name: str, variables: Mapping[str, object]) -> Literal["ssh", "local"]:
    kind = str(variables.get("ansible_connection") or constants.DEFAULT_TRANSPORT)
    if kind in _SSH_CONNECTIONS:
        return "ssh"
    if kind in _LOCAL_CONNECTIONS:
        return "local"
    raise InventoryError(
        f"host {name}: ansible_connection is '{kind}'; nodectl knows ssh and local", f"leave it out: -l 'all:!{name}'"
    )


def _resolve(source: str) -> str:
    """The source as Ansible is to see it: a host list as it is, else an absolute path that exists."""
    if "," in source:
        return source
    path = Path(source).expanduser().absolute()
    if not path.exists():
        raise InventoryError(f"no inventory at {path}", "give one with -i, or name it in ansible.cfg (inventory = …)")
    return str(path)


def _parse(loader: Any, sources: tuple[str, ...]) -> Any:
    """Ansible only warns of what it cannot read, and goes on without: here that is an error."""
    constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
    with _listening() as heard:
        try:
            manager = ansible_manager.InventoryManager(loader=loader, sources=list(sources))
        except AnsibleError as error:
            detail = heard.reason() or message(error)
            raise InventoryError(f"cannot read the inventory: {detail}", "correct the file it names") from error
    if not manager.hosts:
        raise InventoryError(
            f"{_join(sources)} holds no host" + "".join(f"; {text}" for text in heard.warnings),
            "list hosts in it, or give another inventory with -i",
        )
    for warning in heard.warnings:
        heard.display.warning(warning)
    return manager


@contextmanager
def _listening() -> Iterator[Listener]:
    """Hear what Ansible would only have printed, and keep our own files out of a folder's inventories."""
    heard, ignored = Listener(ansible_manager.display), ansible_manager.IGNORED
    ansible_manager.display = heard
    ansible_manager.IGNORED = re.compile(ignored.pattern + b"|" + _OURS)
    try:
        yield heard
    finally:
        ansible_manager.display, ansible_manager.IGNORED = heard.display, ignored


def _join(sources: Sequence[str]) -> str:
    return ", ".join(sources)


def _unlock_vault(loader: Any) -> None:
    """Vault passwords from where Ansible looks for them (ANSIBLE_VAULT_PASSWORD_FILE, ansible.cfg), never a prompt."""
    if not (constants.DEFAULT_VAULT_PASSWORD_FILE or constants.DEFAULT_VAULT_IDENTITY_LIST):
        return
    from ansible.cli import CLI

    try:
        secrets = CLI.setup_vault_secrets(
            loader, vault_ids=list(constants.DEFAULT_VAULT_IDENTITY_LIST), auto_prompt=False, initialize_context=False
        )
    except AnsibleError as error:
        raise InventoryError(f"vault password: {message(error)}", "check ANSIBLE_VAULT_PASSWORD_FILE") from error
    from ansible.parsing.vault import VaultSecretsContext

    if VaultSecretsContext.current(optional=True) is None:
        VaultSecretsContext.initialize(VaultSecretsContext(secrets))
    loader.set_vault_secrets(secrets)

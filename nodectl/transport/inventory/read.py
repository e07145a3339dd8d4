"""The Ansible inventory as hosts: the only place that knows Ansible's loader, its patterns and how its errors read."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import ansible
from ansible import constants, context
from ansible.errors import AnsibleError
from ansible.inventory import manager as ansible_manager
from ansible.module_utils import basic
from ansible.module_utils.common.collections import ImmutableDict
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import PromptVaultSecret
from ansible.plugins.loader import init_plugin_loader
from ansible.utils.collection_loader import AnsibleCollectionConfig
from ansible.utils.vars import load_extra_vars
from ansible.vars.manager import VariableManager

from nodectl.common.access import VAULT_REMEDY, Access
from nodectl.common.paths import state_dir
from nodectl.common.resources import collections_dir
from nodectl.common.spelling import meant
from nodectl.errors import InventoryError
from nodectl.model.host import Host
from nodectl.transport.inventory import refuse_sources_of_others
from nodectl.transport.inventory.here import environment, inventory_of_here, is_example, lists_here
from nodectl.transport.ssh_target import refuse_options

# where several names say the same, Ansible lets the last one win
_ADDRESS = ("ansible_host", "ansible_ssh_host")
_PORT = ("ansible_port", "ansible_ssh_port")
_USER = ("ansible_user", "ansible_ssh_user")
_SSH_CONNECTIONS = {"ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh"}
_LONGEST_COMPLAINT = 300
# what a vaulted value is, from ansible-core 2.19 on and before
_ENCRYPTED = ("EncryptedString", "AnsibleVaultEncryptedUnicode")
# how Ansible calls the origin of a setting that nobody set
_DEFAULT = "default"
_LOCAL_CONNECTIONS = {"local", "ansible.builtin.local"}
# nodectl's own files next to an inventory that is a folder: settings, profiles, the versions that runs have pinned
_OURS = rb"^nodectl\.toml$|^profiles$|^locks$"
# how Ansible says that it has no such plug-in, 2.16 to 2.21
_NO_PLUGIN = re.compile(
    r"(?:lookup|inventory) plugin \(?'?([\w.]+)'?\)? (?:was )?not found"
    r"|unknown plugin '([\w.]+)'|No filter named '([\w.]+)'"
)


class Inventory:
    """The hosts of one or more Ansible inventories."""

    def __init__(self, manager: Any, loader: Any, sources: tuple[str, ...], access: Access) -> None:
        self.sources = sources
        self._access = access
        self._manager = manager
        self._loader = loader
        self._variables = VariableManager(loader=loader, inventory=manager)
        self._hostvars: Any = None

    @classmethod
    def read(cls, sources: Sequence[str], access: Access | None = None) -> Inventory:
        """Read `sources` (by default what ansible.cfg or ANSIBLE_INVENTORY say), with Ansible's own options.

        Raises InventoryError with file and line where a source cannot be read, or where all of them hold no host.
        """
        who = "" if sources else _who_names_it()
        named = sources or constants.DEFAULT_HOST_LIST
        resolved: tuple[str, ...] = (inventory_of_here(),)
        if not _means_here(named, who):
            resolved = tuple(_resolve(one, who) for one in named)
        refuse_sources_of_others(resolved)
        loader, access = DataLoader(), access or Access()
        if AnsibleCollectionConfig.collection_finder is None:
            init_plugin_loader([str(collections_dir())])
        _unlock_vault(loader, access)
        _take_extra_vars(loader, access)
        manager = _parse(loader, resolved)
        return cls(manager, loader, resolved, access)

    @property
    def is_here(self) -> bool:
        """True if no file names hosts, and this machine alone is meant."""
        return self.sources == (inventory_of_here(),)

    def hosts(self, limit: str | None = None) -> tuple[Host, ...]:
        """Return the hosts that the Ansible pattern `limit` selects, in the inventory's order."""
        return tuple(self._host(host) for host in self._selected(limit))

    def names(self, limit: str | None = None) -> tuple[str, ...]:
        """Return the names of those hosts, also of such whose variables fail."""
        return tuple(str(host.name) for host in self._selected(limit))

    def _selected(self, limit: str | None) -> list[Any]:
        if limit and self.is_here and lists_here(limit):
            limit = None
        try:
            with _listening() as listener:
                self._manager.subset(limit)
                selected = [host for host in self._manager.get_hosts("all") if not host.implicit]
        except (AnsibleError, OSError, re.error) as error:
            reason = _message(error).replace("b'", "'")  # of a file that is not there
            raise InventoryError(f"--limit {limit}: {reason}", "give an Ansible host pattern, or @FILE") from error
        if not selected:
            groups = ", ".join(sorted(set(self._manager.groups) - {"all", "ungrouped"})) or "none"
            hints = "".join(f"; {text}" for text in listener.warnings if not text.startswith("Could not match"))
            raise InventoryError(
                f"no host of {', '.join(self.sources)} matches '{limit}'{hints}",
                f"{self._hints(limit or '')}name a host or a group (groups here: {groups})",
            )
        for warning in listener.warnings:  # of a pattern of several, one part matched nothing
            listener.display.warning(warning)
        return list(selected)

    def _host(self, host: Any) -> Host:
        key, password = self._access.private_key_file, self._access.connection_password()
        # the inventory's variables go over these: of the command line, else of ansible.cfg
        before = {**configured(), **({"ansible_ssh_private_key_file": key} if key else {})}
        # what the operator typed or has active, for hosts of which the inventory says nothing: these are no templates
        typed = {} if password is None else {"ansible_password": password}
        if self.is_here:
            typed["pytorch_venv"] = environment()
        try:
            raw = {**before, **self._variables.get_vars(host=host, include_hostvars=False)}
            return _as_host(host.name, HostVariables(host.name, raw, self._render, typed))
        except AnsibleError as error:
            remedy = _remedy(error, "correct the variable, or the file that the message names")
            raise InventoryError(f"host {host.name}: {_message(error)}", remedy) from error

    def _hints(self, limit: str) -> str:
        names = {*self._manager.hosts, *self._manager.groups}
        parts = [part.lstrip("!&") for part in re.split("[,:]", limit)]
        return "".join(meant(part, names) for part in parts if part not in names)

    def _render(self, name: str, variables: Mapping[str, Any], value: object) -> object:
        from ansible.template import Templar
        from ansible.vars.hostvars import HostVars

        if self._hostvars is None:
            self._hostvars = HostVars(self._manager, self._variables, self._loader)
        try:
            return Templar(loader=self._loader, variables={**variables, "hostvars": self._hostvars}).template(value)
        except AnsibleError as error:
            raise InventoryError(f"host {name}: {_message(error)}", _remedy(error, "correct the variable")) from error


def _as_host(name: str, variables: HostVariables) -> Host:
    address, user = _last(variables, _ADDRESS), _last(variables, _USER) or constants.DEFAULT_REMOTE_USER
    port = _last(variables, _PORT) or constants.DEFAULT_REMOTE_PORT
    if not f"{name}{address}{user}".isprintable():
        raise InventoryError(
            f"host {name!r}: its name, address or login is no text", "is this an inventory? name another"
        )
    host = Host(
        name=name,
        address=str(address or name),
        port=None if port is None else _port(name, port),
        user=None if user is None else str(user),
        connection=_connection(name, variables),
        variables=variables,
    )
    if host.connection == "ssh":
        refuse_options(host)  # an option that nodectl does not know is refused before anything runs
    return host


def vaulted(host: Host) -> frozenset[str]:
    """Names of the host's variables that are encrypted one by one."""
    return host.variables.vaulted() if isinstance(host.variables, HostVariables) else frozenset()


@lru_cache(maxsize=1)
def configured() -> Mapping[str, str]:
    """Return what ansible.cfg and ANSIBLE_SSH_* say of all hosts, by the names of the variables that come first."""
    config = constants.config
    parser = config._parsers.get(config._config_file)
    settings = {"ansible_ssh_private_key_file": constants.DEFAULT_PRIVATE_KEY_FILE}
    for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
        value = parser.get("ssh_connection", name, raw=True, fallback=None) if parser else None
        settings[f"ansible_{name}"] = os.environ.get(f"ANSIBLE_{name.upper()}", value)
    return {name: str(value) for name, value in settings.items() if value}


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


def _who_names_it() -> str:
    _, origin = constants.config.get_config_value_and_origin("DEFAULT_HOST_LIST")
    return str(origin).removeprefix("env: ")


def _means_here(sources: Sequence[str], who: str) -> bool:
    """Return whether this machine is meant: by its name, or since nobody names an inventory of hosts of theirs.

    Then Ansible's own is absent, or an ansible.cfg names the example of the source tree.
    """
    if who == _DEFAULT:
        return not any(Path(source).exists() for source in sources)
    if Path(who).is_absolute():
        return all(map(is_example, sources))
    return len(sources) == 1 and lists_here(sources[0]) and not Path(sources[0]).exists()


def _missing(path: Path, who: str) -> InventoryError:
    place = f"no inventory at {path}" + (f", which {who} names" if who else "")
    lab, above = path.parent, state_dir() / "lab"
    if path.name == "inventory.yml" and lab.parent == above:
        again = f"nodectl lab up --name {lab.name}"
        unset = "; or: unset ANSIBLE_INVENTORY" if who == "ANSIBLE_INVENTORY" else ""
        return InventoryError(f"{place}: the lab '{lab.name}' is not up", f"{again}{unset}")
    return InventoryError(place, "give one with -i, or name it in ansible.cfg (inventory = …)")


def _resolve(source: str, who: str) -> str:
    if "," in source:
        return source
    path = Path(source).expanduser().absolute()
    if not path.exists():
        raise _missing(path, who)
    if (path / "checks.d").is_dir():
        reason = f"{path / 'checks.d'} lies in an inventory's folder, whose executables Ansible runs on this machine"
        raise InventoryError(reason, f"put it beside the folder: mv {path / 'checks.d'} {path.parent}")
    return str(path)


def _parse(loader: Any, sources: tuple[str, ...]) -> Any:
    """Ansible only warns of what it cannot read, and goes on without: here that is an error."""
    constants.INVENTORY_ANY_UNPARSED_IS_FAILED = True
    with _listening() as listener:
        try:
            manager = ansible_manager.InventoryManager(loader=loader, sources=list(sources))
        except AnsibleError as error:
            source = _message(error).rpartition(" source ")[2]
            cause = listener.refusal(source) or error
            place = "" if source in _located(cause) else f"{source}: "
            remedy = _remedy(cause, "correct the file it names")
            raise InventoryError(f"cannot read the inventory: {place}{_located(cause)}", remedy) from error
    if not manager.hosts:
        raise InventoryError(
            f"{', '.join(sources)} holds no host" + "".join(f"; {text}" for text in listener.warnings),
            "list hosts in it, or give another inventory with -i",
        )
    for warning in listener.warnings:
        listener.display.warning(warning)
    return manager


@contextmanager
def _listening() -> Iterator[_Listener]:
    listener, ignored = _Listener(ansible_manager.display), ansible_manager.IGNORED
    ansible_manager.display = listener
    ansible_manager.IGNORED = re.compile(ignored.pattern + b"|" + _OURS)
    try:
        yield listener
    finally:
        ansible_manager.display, ansible_manager.IGNORED = listener.display, ignored


def _take_extra_vars(loader: Any, access: Access) -> None:
    """Give `-e` to Ansible's own reader, which keeps the first answer for the whole process."""
    context.CLIARGS = ImmutableDict(extra_vars=access.given_vars)
    vars(load_extra_vars).pop("extra_vars", None)
    remedy = "give KEY=VALUE, JSON, or @FILE"
    try:
        variables = load_extra_vars(loader)
    except AnsibleError as error:
        raise InventoryError(f"--extra-vars: {_message(error)}", _remedy(error, remedy)) from error
    # Ansible keeps the words that are no KEY=VALUE under a name that nothing reads
    if "_raw_params" in variables:
        raise InventoryError(f"--extra-vars: '{variables['_raw_params']}' is not a KEY=VALUE", remedy)


def _unlock_vault(loader: Any, access: Access) -> None:
    """Vault passwords from the command line and from where Ansible looks for them; a prompt only where one is named."""
    wanted = [*constants.DEFAULT_VAULT_IDENTITY_LIST, *access.vault_id]
    if access.vault_secrets is None:
        files = list(access.vault_password_file)
        any_named = wanted or files or access.ask_vault_pass or constants.DEFAULT_VAULT_PASSWORD_FILE
        access.vault_secrets = _vault_secrets(loader, wanted, files, access.ask_vault_pass) if any_named else []
        for _, secret in access.vault_secrets:
            if isinstance(secret, PromptVaultSecret):
                prompt = secret.prompt_formats[0] % {"vault_id": secret.vault_id}
                access.answer_vault(prompt, secret.bytes.decode())
    loader.set_vault_secrets(access.vault_secrets)
    try:
        from ansible.parsing.vault import VaultSecretsContext
    except ImportError:  # ansible-core before 2.19 has them of the loader alone
        return
    if access.vault_secrets and VaultSecretsContext.current(optional=True) is None:
        VaultSecretsContext.initialize(VaultSecretsContext(access.vault_secrets))


def _vault_secrets(loader: Any, ids: list[str], files: list[str], ask: bool) -> list[Any]:
    from ansible.cli import CLI

    # Ansible would set its context up once a process, and fail at the second time
    parameters = inspect.signature(CLI.setup_vault_secrets).parameters
    later = {"initialize_context": False} if "initialize_context" in parameters else {}
    try:
        return list(
            CLI.setup_vault_secrets(
                loader, vault_ids=ids, vault_password_files=files, ask_vault_pass=ask, auto_prompt=False, **later
            )
        )
    except AnsibleError as error:
        remedy = "check --vault-password-file, --vault-id, ANSIBLE_VAULT_PASSWORD_FILE and ansible.cfg"
        raise InventoryError(f"vault password: {_message(error)}", remedy) from error


class HostVariables(Mapping[str, object]):
    """A host's variables; templates are rendered and vaulted values decrypted when they are asked for."""

    def __init__(
        self,
        name: str,
        raw: Mapping[str, Any],
        render: Callable[[str, Mapping[str, Any], object], object],
        typed: Mapping[str, object] | None = None,
    ) -> None:
        """`typed` are values that are no templates, for names that `raw` has not."""
        plain = {key: value for key, value in (typed or {}).items() if key not in raw}
        self._name, self._raw, self._render = name, {**raw, **plain}, render
        self._rendered: dict[str, object] = dict(plain)

    def __getitem__(self, key: str) -> object:
        if key not in self._rendered:
            value = self._raw[key]
            rendered = self._render(self._name, self._raw, value) if _needs_rendering(value) else value
            self._rendered[key] = _plain(rendered)
        return self._rendered[key]

    def vaulted(self) -> frozenset[str]:
        """Names of those that are encrypted one by one."""
        return frozenset(key for key, value in self._raw.items() if type(value).__name__ in _ENCRYPTED)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def _needs_rendering(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(_needs_rendering(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_needs_rendering(item) for item in value)
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return not (value is None or isinstance(value, int | float))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else str(value)


class _Listener:
    def __init__(self, display: Any) -> None:
        self.display = display
        self.refusals: list[Exception] = []
        self.warnings: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.display, name)

    def error_as_warning(self, msg: str, exception: Exception) -> None:
        self.refusals.append(exception)

    def warning(self, msg: str, *_: object, **__: object) -> None:
        if "* Failed to parse" in msg:  # how ansible-core before 2.19 reports a refusal
            self.refusals.append(AnsibleError(msg.partition(" plugin: ")[2]))
        else:
            self.warnings.append(msg)

    def refusal(self, source: str) -> Exception | None:
        """Return the refusal of the plug-in that a file is for: readers of other forms have tried it as well."""
        tried = [error for error in self.refusals if "no root 'plugin' key" not in _message(error)]
        is_first = source.endswith((".yml", ".yaml", ".json")) or os.access(source, os.X_OK)
        return tried[0 if is_first else -1] if tried else None


def _located(error: BaseException) -> str:
    origin = getattr(error, "obj", None)
    path, line = getattr(origin, "path", None), getattr(origin, "line_num", None)
    helps = [str(getattr(cause, "_help_text", None) or "") for cause in (error, error.__cause__)]
    printed = next((" ".join(text.partition("\n")[2].split()) for text in helps if "tandard error" in text), "")
    place = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
    return f"{place}{_message(error)}" + (f": {printed[-_LONGEST_COMPLAINT:]}" if printed else "")


def _message(error: BaseException) -> str:
    return " ".join(str(getattr(error, "message", None) or error).split())


def _remedy(error: BaseException, otherwise: str) -> str:
    text = _message(error)
    if "decrypt" in text.lower():
        return VAULT_REMEDY
    if missing := _NO_PLUGIN.search(text):
        name = next(filter(None, missing.groups()))
        return (
            f"install what holds the plug-in {name}: ansible-galaxy collection install, or set ANSIBLE_COLLECTIONS_PATH"
        )
    return "define what the template uses" if "undefined" in text else otherwise


@dataclass(frozen=True, slots=True)
class Settings:
    """Ansible's own settings; `file` is the ansible.cfg that counts.

    `origins` has for each setting that somebody set a file, or a variable of the environment (`env: NAME`).
    """

    version: str
    file: str | None
    origins: Mapping[str, str]
    inventory: tuple[str, ...]
    inventory_origin: str
    host_key_checking: bool
    least_python: tuple[int, ...]


def settings() -> Settings:
    """Return it as Ansible has read them in this process."""
    config = constants.config
    names = config.get_configuration_definitions()
    origins = {name: str(config.get_config_value_and_origin(name)[1]) for name in names}
    return Settings(
        version=str(ansible.__version__),
        file=constants.CONFIG_FILE,
        origins={name: origin for name, origin in origins.items() if origin not in ("", "default")},
        inventory=tuple(constants.DEFAULT_HOST_LIST),
        inventory_origin=origins["DEFAULT_HOST_LIST"],
        host_key_checking=bool(constants.HOST_KEY_CHECKING),
        least_python=tuple(getattr(basic, "_PY_MIN", ())),
    )

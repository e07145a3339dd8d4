"""Ansible's own settings: which file they stand in, which are set and where, and which inventory they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ansible
from ansible import constants
from ansible.module_utils import basic

_INVENTORY = "DEFAULT_HOST_LIST"


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
        inventory_origin=origins[_INVENTORY],
        host_key_checking=bool(constants.HOST_KEY_CHECKING),
        least_python=tuple(getattr(basic, "_PY_MIN", ())),
    )

"""Ansible's own settings: which file they stand in, which are set and where, and which inventory they name."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ansible
from ansible import constants
from ansible.module_utils import basic

_INVENTORY = "DEFAULT_HOST_LIST"


@dataclass(frozen=True, slots=True)
class Settings:
    """Ansible's own settings; `file` is the ansible.cfg that counts.

    `origins` has for each setting that somebody set a file, or a variable of the environment (`env: NAME`).
    `passed_over`: an ansible.cfg that Ansible does not take, and why.
    """

    version: str
    file: str | None
    origins: Mapping[str, str]
    inventory: tuple[str, ...]
    inventory_origin: str
    host_key_checking: bool
    least_python: tuple[int, ...]
    passed_over: str = ""


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
        passed_over=_passed_over(constants.CONFIG_FILE),
    )


def _passed_over(taken: str | None) -> str:
    """Return what is said of an ansible.cfg that would come first, and that Ansible does not take."""
    named = os.environ.get("ANSIBLE_CONFIG")
    path = Path(named).expanduser() if named else Path("ansible.cfg")
    path = (path / "ansible.cfg" if path.is_dir() else path).absolute()
    if taken is not None and path == Path(taken).absolute():
        return ""
    if named:
        return f"ANSIBLE_CONFIG names {path}, which {'cannot be read' if path.exists() else 'is not there'}"
    if not path.exists():
        return ""
    why = "everybody may write in its folder" if path.parent.stat().st_mode & stat.S_IWOTH else "it cannot be read"
    return f"{path} is not taken: {why}"

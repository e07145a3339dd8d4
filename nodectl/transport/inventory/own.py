"""Refuses files of the current folder that run programs on this machine and that another login decides about."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nodectl.common.paths import refuse_open

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

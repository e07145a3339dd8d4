"""Ansible as the operator has set it up: where it is, which settings count, and what disturbs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nodectl.common.few import few
from nodectl.common.paths import state_dir
from nodectl.common.resources import COLLECTION, collections_dir
from nodectl.doctor.finding import here
from nodectl.inventory import read_settings
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_PLAYBOOK = "ansible-playbook"
# those that say what is to be done and with what, and disturb nothing
_HARMLESS = {"ANSIBLE_HOME", "ANSIBLE_INVENTORY", "ANSIBLE_CONFIG", "ANSIBLE_LOCAL_TEMP"}


def ansible() -> Iterator[Finding]:
    """The settings, and whether Ansible started by hand would find this collection."""
    # our own temporary folder is no setting of the operator's
    own = str(state_dir() / "ansible")
    settings = read_settings()
    of_file = [name for name, origin in settings.origins.items() if origin == settings.file]
    variables = [name for name in settings.variables if os.environ.get(name) != own]
    shown = f"{settings.file} ({len(of_file)} settings)" if settings.file else "no ansible.cfg"
    yield here("ansible", Status.OK, f"{settings.version}; {shown}", subject="settings")
    if settings.passed_over:
        remedy = "chmod o-w ." if "everybody" in settings.passed_over else "unset ANSIBLE_CONFIG, or correct it"
        yield _disturbs(settings.passed_over, "an ansible.cfg that counts", remedy, "ansible.cfg")
    if not settings.host_key_checking:
        origin = settings.origins.get("HOST_KEY_CHECKING", "ansible.cfg")
        actual = f"host_key_checking is off ({origin}), which nodectl overrules, and playbooks of yours obey"
        yield _disturbs(actual, "keys are checked", "take it out; then: nodectl hostkeys accept", "host keys")
    disturbing = sorted(set(variables) - _HARMLESS)
    if disturbing:
        actual = f"set in this shell, over ansible.cfg: {few(disturbing, 8)}"
        yield _disturbs(actual, "none by mistake", f"unset {' '.join(disturbing)}", "environment")
    for name, meant in settings.misspelt_variables.items():
        yield _disturbs(f"{name} sets nothing", f"{meant}?", f"unset {name}; export {meant}=…", "environment")
    yield _collection(settings.collections)


def _disturbs(actual: str, expected: str, remedy: str, subject: str) -> Finding:
    return here("ansible", Status.WARNING, actual, expected=expected, remedy=remedy, subject=subject)


def program() -> Iterator[Finding]:
    """The ansible-playbook that provisioning starts: beside the interpreter, else on PATH."""
    beside = Path(sys.executable).parent
    path = shutil.which(_PLAYBOOK, path=os.pathsep.join([str(beside), os.environ.get("PATH", os.defpath)]))
    if path is None:
        remedy = f"{sys.executable} -m pip install --force-reinstall ansible-core"
        yield here("programs", Status.FAILED, "not on PATH", expected="ansible-core", remedy=remedy, subject=_PLAYBOOK)
    else:
        yield here("programs", Status.OK, path, subject=_PLAYBOOK)


def _collection(folders: Sequence[str]) -> Finding:
    own = (collections_dir() / COLLECTION).resolve()
    places = [Path(folder).expanduser() / COLLECTION for folder in folders]
    others = [str(path) for path in places if path.is_dir() and path.resolve() != own]
    if not others:
        return here("ansible", Status.OK, f"nodectl.fleet in {own}", subject="collection")
    actual = f"another nodectl.fleet in {few(others)}, which playbooks of yours take; nodectl takes {own}"
    return _disturbs(actual, "one", f"rm -r {others[0]}", "collection")

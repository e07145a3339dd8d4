"""Ansible's connections check host keys, whatever variables, options, settings and files say.

OpenSSH takes the first value of an option, so those of `jump.FIRST` stand before all others, for ssh, sftp and scp and
for mitogen's ssh. The keys are those of the known_hosts files that `nodectl exec` reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import wraps
from typing import Any

from nodectl.errors import InventoryError
from nodectl.provision.jump import FIRST
from nodectl.transport.ssh_options import refuse_unchecked


def check_keys() -> None:
    """From now on the connections of this process, and of those that it forks, check host keys; idempotent."""
    from ansible.plugins.connection.ssh import Connection

    build = Connection._build_command
    if getattr(build, "checks_keys", False):
        return

    @wraps(build)
    def command(self: Any, binary: str, subsystem: str, *others: bytes | str) -> list[bytes]:
        built: list[bytes] = build(self, binary, subsystem, *others)
        place = built.index(os.fsencode(binary)) + 1
        program = str(self.get_option("ssh_executable"))
        # sftp and scp start an ssh of their own
        through = ["-S", program] if subsystem != "ssh" and program != "ssh" else []
        return [*built[:place], *map(os.fsencode, [*through, *FIRST, *_shared_by(self, built)]), *built[place:]]

    command.checks_keys = True  # type: ignore[attr-defined]
    Connection._build_command = command


def _shared_by(connection: Any, built: list[bytes]) -> list[str]:
    """The run's own socket for a connection that is shared: who opened another one, and what it checked, is unknown."""
    folder = os.environ.get("ANSIBLE_SSH_CONTROL_PATH_DIR")
    if "NODECTL_RUN" not in os.environ or not folder or not connection._persistence_controls(built)[0]:
        return []
    path = connection._create_control_path(connection.host, connection.port, connection.user)
    return ["-o", f'ControlPath="{path % {"directory": folder}}"']


def check_keys_of_mitogen() -> None:
    """The same for mitogen's connections; idempotent."""
    from ansible_mitogen.connection import CONNECTION_METHOD

    method = CONNECTION_METHOD["ssh"]
    if getattr(method, "checks_keys", False):
        return

    @wraps(method)
    def connect(spec: Any) -> dict[str, Any]:
        made: dict[str, Any] = method(spec)
        made["kwargs"]["check_host_keys"] = "enforce"
        # it keeps its connection itself, and shares none of another's
        made["kwargs"]["ssh_args"] = [*FIRST, "-o", "ControlPath=none", *(made["kwargs"]["ssh_args"] or [])]
        return made

    connect.checks_keys = True  # type: ignore[attr-defined]
    CONNECTION_METHOD["ssh"] = connect


def why_unchecked(name: str, variables: Mapping[str, Any], connection: str) -> str:
    """Why a play does not run on host `name`: its connection, or a variable that asks for keys not to be checked."""
    if "paramiko" in connection:
        return f"host {name}: ansible_connection is {connection}: playbooks check host keys by ssh alone; set it to ssh"
    plain = {key: value for key, value in variables.items() if not (isinstance(value, str) and "{{" in value)}
    try:
        refuse_unchecked(name, plain)
    except InventoryError as error:
        return f"{error.message}; {error.remedy}"
    return ""

"""Ansible's connections check host keys, whatever variables, options, settings and files say.

OpenSSH takes the first value of an option, so those of `first` stand before all others, for ssh, sftp and scp and for
mitogen's ssh; of `-S` it takes the last. The keys are those of the known_hosts files that `nodectl exec` reads. A host
is judged when the options of its connection are final: templates are rendered then, and delegation is resolved.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

from nodectl.errors import InventoryError
from nodectl.provision import jump
from nodectl.transport.ssh_options import PROGRAMS, is_judged, refuse_unchecked

_FIRST = ("StrictHostKeyChecking=yes", "NoHostAuthenticationForLocalhost=no", "VerifyHostKeyDNS=no")
# what OpenSSH has since 8.5; an older one does not know it, and cannot be told to run it
_FIRST_IF_KNOWN = "KnownHostsCommand=none"
# ways to a host on which no key of a host is shown, and the one that is held to known_hosts
_TRANSPORTS = ("ssh", "local", "community.docker.docker", "containers.podman.podman")
# of a folder: a Mac takes 104 bytes of a socket, of which Ansible's name, our folder and ssh's own ending need 45
_LONGEST = 58
# what may name a jump host, in OpenSSH's words; a file may
_JUMP = re.compile(r"(^|[\s'\"])-\w*[JF]|(?i:proxyjump)")


@cache
def first() -> tuple[str, ...]:
    """Return the options that stand before all others: with them a host key that nobody accepted is refused."""
    argv = ["ssh", "-G", "-F", "none", "-o", _FIRST_IF_KNOWN, "localhost"]
    try:
        is_known = subprocess.run(argv, capture_output=True, check=False).returncode == 0
    except OSError:
        is_known = False
    return tuple(word for option in (*_FIRST, *[_FIRST_IF_KNOWN] * is_known) for word in ("-o", option))


def check_keys() -> None:
    """Have the connections of this process, and of those that it forks, check host keys; idempotent."""
    from ansible.plugins.connection.ssh import Connection

    build = Connection._build_command
    if getattr(build, "checks_keys", False):
        return
    first(), _sockets(), _program()

    @wraps(build)
    def command(self: Any, binary: str, subsystem: str, *others: bytes | str) -> list[bytes]:
        built: list[bytes] = build(self, binary, subsystem, *others)
        path = _socket(self, built)
        # for sftp and scp, which start an ssh of their own, -S is its program
        last = path if subsystem == "ssh" else str(self.get_option("ssh_executable"))
        place, end = built.index(os.fsencode(binary)) + 1, len(built) - len(others)
        ours = map(os.fsencode, [*first(), "-o", f'ControlPath="{path}"'])
        return [*built[:place], *ours, *built[place:end], b"-S", os.fsencode(last), *built[end:]]

    command.checks_keys = True  # type: ignore[attr-defined]
    Connection._build_command = command
    _judge_each_connection()


def _judge_each_connection() -> None:
    from ansible.errors import AnsibleConnectionFailure
    from ansible.executor.task_executor import TaskExecutor

    set_options = TaskExecutor._set_connection_options

    @wraps(set_options)
    def judged(self: Any, variables: Mapping[str, Any], templar: Any) -> Any:
        names = set_options(self, variables, templar)
        rendered = {name: templar.template(value) for name, value in variables.items() if is_judged(name)}
        host = str(self._task.delegate_to or self._host.name)
        if reason := why_unchecked(host, rendered, self._connection):
            raise AnsibleConnectionFailure(reason)
        if self._connection.transport == "ssh" and _may_jump(self._connection):
            self._connection.set_option("ssh_executable", _program())
        return names

    TaskExecutor._set_connection_options = judged


def _socket(connection: Any, built: list[bytes]) -> str:
    """Return the socket by which the run alone shares this connection, else `none`.

    Who opened another one, and what it checked, is unknown.
    """
    if not connection._persistence_controls(built)[0]:
        return "none"
    path: str = connection._create_control_path(connection.host, connection.port, connection.user)
    return path % {"directory": _sockets()}


@cache
def _sockets() -> str:
    """Return the run's folder for sockets, with a short path: provision's, else one that goes with the process."""
    folder = os.environ.get("ANSIBLE_SSH_CONTROL_PATH_DIR")
    if "NODECTL_RUN" in os.environ and folder:
        return folder
    made, process = socket_folder(), os.getpid()
    atexit.register(lambda: close_sockets(made) if os.getpid() == process else None)
    return str(made)


def socket_folder() -> Path:
    """Make a folder with a path short enough for a socket."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="nodectl-", dir=usual if len(usual) <= _LONGEST else "/tmp"))  # noqa: S108


def close_sockets(folder: Path) -> None:
    """End the connections that ssh keeps below the folder, and remove it."""
    for socket in filter(Path.is_socket, folder.iterdir()):
        argv = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "nodectl"]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(argv, capture_output=True, timeout=5, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _may_jump(connection: Any) -> bool:
    """Return whether a jump host may stand before the host: OpenSSH's own ssh to it would get none of our options."""
    texts = [str(connection.get_option(f"ssh_{kind}args") or "") for kind in ("", "common_", "extra_")]
    return any(_JUMP.search(text) for text in texts) or bool(
        jump.of_config([str(connection._play_context.remote_addr)])
    )


@cache
def _program() -> str:
    """Our program in ssh's place, in Ansible's own folder for this run."""
    from ansible import constants

    return str(jump.install(Path(constants.DEFAULT_LOCAL_TMP)))


def check_keys_of_mitogen() -> None:
    """Have mitogen's connections check host keys; idempotent."""
    from ansible_mitogen.connection import CONNECTION_METHOD

    method = CONNECTION_METHOD["ssh"]
    if getattr(method, "checks_keys", False):
        return

    @wraps(method)
    def connect(spec: Any) -> dict[str, Any]:
        made: dict[str, Any] = method(spec)
        made["kwargs"]["check_host_keys"] = "enforce"
        ssh_arguments = made["kwargs"]["ssh_args"] or []
        # it keeps its connection itself, and shares none of another's
        made["kwargs"]["ssh_args"] = [*first(), "-o", "ControlPath=none", *ssh_arguments, "-S", "none"]
        return made

    connect.checks_keys = True  # type: ignore[attr-defined]
    CONNECTION_METHOD["ssh"] = connect


def why_unchecked(name: str, variables: Mapping[str, Any], connection: Any) -> str:
    """Return why a task does not reach host `name`.

    Its connection, or a variable that asks for keys not to be checked.
    """
    way = str(connection.transport)
    if way not in _TRANSPORTS:
        return f"host {name}: ansible_connection is {way}: playbooks check host keys by ssh alone; set it to ssh"
    programs = PROGRAMS if way == "ssh" else {}
    # with what ansible.cfg and the environment say
    final = {variable: connection.get_option(f"{program}_executable") for variable, program in programs.items()}
    try:
        refuse_unchecked(name, {**variables, **final})
    except InventoryError as error:
        return f"{error.message}; {error.remedy}"
    return ""

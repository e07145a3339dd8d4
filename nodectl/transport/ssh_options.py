"""The arguments that an inventory gives to ssh for a host, and the variables that are refused.

OpenSSH itself reads the options of `ansible_ssh_*_args`. A variable that would let a host key pass unseen is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from nodectl.errors import InventoryError
from nodectl.model.host import Host

ACCEPT_REMEDY = "take it out; `nodectl hostkeys accept` shows the fingerprints and stores the keys"
# Ansible's variables for the programs that connect; another program may do as it likes with a host key
PROGRAMS = {"ansible_ssh_executable": "ssh", "ansible_sftp_executable": "sftp", "ansible_scp_executable": "scp"}


def ssh_arguments(host: Host) -> tuple[str, ...]:
    """Return the arguments that Ansible would give to ssh for `host`, in its order: the first value counts.

    InventoryError for a variable that would let a host key pass unseen.
    """
    refuse_unchecked(host.name, host.variables)
    key = host.variables.get("ansible_ssh_private_key_file") or host.variables.get("ansible_private_key_file")
    # ssh drops a file that does not exist from -i
    own = [("Port", host.port), ("IdentityFile", f'"{key}"' if key else None), ("User", host.user)]
    return (
        *_words(host, "ansible_ssh_args"),
        *(word for option, value in own if value for word in ("-o", f"{option}={value}")),
        *_words(host, "ansible_ssh_common_args"),
        *_words(host, "ansible_ssh_extra_args"),
    )


def _words(host: Host, variable: str) -> list[str]:
    text = str(host.variables.get(variable) or "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InventoryError(f"host {host.name}: {variable}: {error}: {text}", "close the quote") from error


def refuse_unchecked(name: str, variables: Mapping[str, object]) -> None:
    """Raise InventoryError for a variable by which Ansible's connection would not check the host key of host `name`.

    Also raise for variables that select another SSH program or connection plug-in.
    """
    for variable in filter(is_judged, variables):
        if variable.endswith("host_key_checking") and not _means(variables[variable], "yes", "true", "1", "on", "y"):
            why, remedy = "nodectl never trusts a host key unseen", ACCEPT_REMEDY
        elif variable.endswith("host_key_auto_add") and not _means(variables[variable], "no", "false", "0", "off", "n"):
            why, remedy = "nodectl never stores a host key unseen", ACCEPT_REMEDY
        elif variable in PROGRAMS and not _means(variables[variable], PROGRAMS[variable]):
            why = f"nodectl can hold only OpenSSH's {PROGRAMS[variable]} to the host keys of known_hosts"
            remedy = "take it out, and put the program that you want first on PATH"
        else:
            continue
        raise InventoryError(f"host {name}: {variable} is {variables[variable]!r}: {why}", remedy)


def is_judged(variable: str) -> bool:
    """Return whether `refuse_unchecked` looks at this variable."""
    is_switch = variable.startswith("ansible_") and variable.endswith(("host_key_checking", "host_key_auto_add"))
    return is_switch or variable in PROGRAMS


def _means(value: object, *texts: str) -> bool:
    return value is None or str(value).strip().lower() in (*texts, "")

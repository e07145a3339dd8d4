"""How a host is reached, taken over from one inventory into another: no password, and no default."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nodectl.model.host import Host

_CONNECTION = (
    "ansible_host",
    "ansible_ssh_host",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_user",
    "ansible_ssh_user",
    "ansible_connection",
    "ansible_ssh_private_key_file",
    "ansible_ssh_args",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_python_interpreter",
    "ansible_become_method",
    "ansible_become_exe",
    # not how it is reached, but what only the operator knows of the way there
    "nodectl_link_rate",
)
_PASSWORDS = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_password",
    "ansible_become_pass",
)


def connection_variables(
    host: Host, everywhere: Mapping[str, object], vaulted: Collection[str] = ()
) -> dict[str, object]:
    """The variables by which the host is reached, rendered; not those that `everywhere` (ansible.cfg) says anyway, nor
    what is `vaulted`."""
    return {
        name: host.variables[name]
        for name in _CONNECTION
        if name not in vaulted
        if host.variables.get(name) not in (None, "") and host.variables[name] != everywhere.get(name)
    }


def secrets(host: Host, vaulted: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the variables that hold a password or are `vaulted`, and are left where they are."""
    held = (name for name in _PASSWORDS if host.variables.get(name) not in (None, ""))
    return tuple(dict.fromkeys([*held, *(name for name in _CONNECTION if name in vaulted)]))

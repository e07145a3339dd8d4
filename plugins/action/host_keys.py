# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible action: a host's connection checks host keys, or the play does not reach the host."""

from __future__ import annotations

import gc
import hashlib
import sys
from typing import Any

from ansible import constants
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins import loader
from ansible.plugins.action import ActionBase
from ansible.utils.path import makedirs_safe, unfrackpath

try:
    from nodectl.errors import InventoryError
    from nodectl.health.verify import verification
    from nodectl.model.host import Host
    from nodectl.profiles.matrix import matrix
    from nodectl.provision.host_keys import checked_arguments
    from nodectl.transport.ssh_target import is_judged

    WITHOUT_NODECTL = ""
except ImportError as import_error:
    WITHOUT_NODECTL = str(import_error)


def _load() -> None:
    """Load what later tasks use: Ansible loads this file before it forks a process for each task of each host."""
    for plugins in (loader.filter_loader, loader.test_loader):
        for _unused in plugins.all():
            pass
    for name in ("assert", "command", "debug", "fail", "group_by", "normal", "set_fact", "validate_argument_spec"):
        loader.action_loader.get(f"ansible.legacy.{name}", class_only=True)
    for name in ("env", "template", "varnames", "vars", "nodectl.fleet.fleet_profile", "nodectl.fleet.run_identity"):
        loader.lookup_loader.get(name, class_only=True)
    if not WITHOUT_NODECTL:
        matrix()
        verification(Host("any", "any", variables={}), (), None)
    # no collection of garbage in a fork then writes to every page of it
    gc.freeze()


_load()


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """Runs on the controller, and connects to nothing."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `ssh_args`; unreachable, with the reason, for a host whose key would not be checked."""
        if WITHOUT_NODECTL:
            raise AnsibleActionFail(
                f"Ansible's Python ({sys.executable}) has no nodectl ({WITHOUT_NODECTL}): install it there, or run "
                "ansible-playbook from the environment that holds nodectl"
            )
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        name, hosts = str(variables["inventory_hostname"]), variables["hostvars"]
        if (way := str(hosts["localhost"].get("ansible_connection", "local"))) != "local":
            raise AnsibleConnectionFailure(
                f"host localhost: ansible_connection is {way}: the playbooks delegate tasks to this machine by that "
                "name; give the host another one"
            )
        rendered = {variable: self._templar.template(variables[variable]) for variable in filter(is_judged, variables)}
        try:
            ssh_args = checked_arguments(name, rendered, self._connection, *self._own(name, hosts[name]))
        except InventoryError as error:
            raise AnsibleConnectionFailure(f"{error.message}; {error.remedy}") from None
        return {**result, "changed": False, "ssh_args": ssh_args}

    def _own(self, name: str, variables: Any) -> tuple[str, str]:
        connection = self._connection
        if connection.transport != "ssh":
            return "", ""
        if connection.get_option("ssh_args"):  # the task's variable is empty; only -e comes before it
            raise AnsibleConnectionFailure(
                "-e ansible_ssh_args replaces the arguments that check host keys: use ansible_ssh_common_args"
            )
        if connection.get_option("host") is None:
            connection.set_option("host", self._play_context.remote_addr)
        own = variables.get("ansible_ssh_args")
        if own is None:
            own = constants.config.get_config_value("ssh_args", plugin_type="connection", plugin_name="ssh")
        folder = unfrackpath(connection.get_option("control_path_dir"))
        makedirs_safe(folder, 0o700)
        digest = hashlib.sha256(f"{constants.DEFAULT_LOCAL_TMP} {name}".encode()).hexdigest()
        return str(own or ""), f"{folder}/{digest[:10]}"

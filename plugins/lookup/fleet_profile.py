# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible lookup: a host's resolved profiles, by nodectl's own merge and validation."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_profile
short_description: What a host should be
description: Resolves hardware, stack and tuning profiles with the host's overrides, as `nodectl profile` does.
author: The nodectl authors (!UNKNOWN)
options:
  _terms: {description: "Names of the hardware, stack and tuning profile.", required: true}
  overrides: {description: The host's nodectl_overrides., type: raw, default: {}}
  nccl: {description: The host's nodectl_nccl_env., type: raw, default: {}}
  allow_unsupported: {description: The host's nodectl_allow_unsupported., type: raw, default: []}
  misfit: {description: The host's nodectl_misfit (allow or refuse)., type: raw, default: ""}
  node: {description: What node_look found on the host; without it the profiles alone are judged., type: dict}
  driver: {description: The host's nodectl_driver (keep or manage)., type: raw}
  role_variables:
    description: >-
      What inventory and command line say in variables of roles is taken too, where a tuning says it (C(nic_mtu)),
      and refused where hardware and stack say it (C(cuda_version)).
    type: bool
    default: false
"""
EXAMPLES = r"""
fleet: "{{ lookup('nodectl.fleet.fleet_profile', nodectl_hardware, nodectl_stack, nodectl_tuning) }}"
"""
RETURN = r"""
_raw:
  description: >-
    Names, hardware, stack, sysctl, nccl_env, limits, nic, gpu, warnings, refusals, way_out, unsupported, uv and
    role_variables (the names of those that were taken).
  type: list
  elements: dict
"""

import platform
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):  # type: ignore[misc]  # Ansible ships no types
    """A few lines over nodectl.profiles.host."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
        """One dictionary; AnsibleError with the reason and the remedy in one line."""
        from uv import find_uv_bin

        from nodectl.common.bounded_json import plain_value
        from nodectl.errors import NodectlError
        from nodectl.profiles import KINDS
        from nodectl.profiles.host import of_variables
        from nodectl.profiles.host_compat import HostLook
        from nodectl.profiles.load import profile_dirs
        from nodectl.profiles.overrides import ALLOW, MISFIT, NCCL_ENV, OVERRIDES
        from nodectl.profiles.role_values import refuse_repeated, role_values

        # what inventory and command line say of the host, without the defaults of the play's roles
        host: Mapping[str, Any] = variables or {}
        if (name := host.get("inventory_hostname")) in host.get("hostvars", ()):
            host = host["hostvars"][name]
        _refuse_slips(host)
        self.set_options(var_options=variables, direct=options)
        options = {OVERRIDES: "overrides", NCCL_ENV: "nccl", ALLOW: "allow_unsupported", MISFIT: "misfit"}
        host_variables = {name: self.get_option(option) for name, option in options.items()}
        host_variables |= {f"nodectl_{kind}": name for kind, name in zip(KINDS, plain_value(terms), strict=True)}
        folders = profile_dirs((variables or {}).get("ansible_inventory_sources") or ())
        try:
            if self.get_option("role_variables"):
                refuse_repeated(host)
                host_variables |= role_values(host)
            node = plain_value(self.get_option("node"))
            look = HostLook.create(node, plain_value(self.get_option("driver"))) if node else None
            resolved = of_variables(host_variables, extra_dirs=folders, look=look)
        except NodectlError as error:
            # Ansible prints each cause again
            raise AnsibleError(". ".join(part for part in (error.message, error.remedy) if part)) from None
        named = sorted(role_values(host_variables))
        uv = {"path": find_uv_bin(), "machine": platform.machine(), "system": platform.system()}
        return [{**resolved.as_variables(), "uv": uv, "role_variables": named}]


def _refuse_slips(variables: Mapping[str, Any]) -> None:
    """Raise AnsibleError for a variable whose name is nearly one of ours: Ansible would ignore it.

    Here, before any role has run: what roles register later is named like their variables.
    """
    from nodectl.common.resources import share_dir
    from nodectl.profiles.role_values import misspelled

    slips = misspelled(variables, share_dir())
    if slips:
        lines = "; ".join(f"{name} is no variable of nodectl's: {meant} is one" for name, meant in slips)
        raise AnsibleError(f"{lines}. Correct it in the inventory, or give a variable of your own another name")

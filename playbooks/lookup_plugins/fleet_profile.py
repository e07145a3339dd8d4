"""Ansible lookup: a host's resolved profiles, by nodectl's own merge and validation."""

from __future__ import annotations

import json
import platform
import sys
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: fleet_profile
short_description: What a host should be
description: Resolves hardware, stack and tuning profiles with the host's overrides, as `nodectl profile` does.
author: The nodectl authors
options:
  _terms: {description: Names of the hardware, stack and tuning profile., required: true}
  overrides: {description: The host's nodectl_overrides., type: dict, default: {}}
  nccl: {description: The host's nodectl_nccl_env., type: dict, default: {}}
"""
EXAMPLES = r"""
fleet: "{{ lookup('fleet_profile', nodectl_hardware, nodectl_stack, nodectl_tuning) }}"
"""
RETURN = r"""
_raw: {description: Names, stack, sysctl, nccl_env, limits, warnings and uv., type: list, elements: dict}
"""


class LookupModule(LookupBase):  # type: ignore[misc]  # Ansible ships no types
    """A few lines over nodectl.profiles.resolve."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
        """One dictionary; AnsibleError with the reason and the remedy in one line."""
        try:
            from uv import find_uv_bin

            from nodectl.errors import NodectlError
            from nodectl.profiles.load import profile_dirs
            from nodectl.profiles.resolve import resolve
        except ImportError as error:
            raise AnsibleError(
                f"Ansible's Python ({sys.executable}) has no nodectl ({error}): install it there, "
                "or run ansible-playbook from the environment that holds nodectl"
            ) from None
        self.set_options(var_options=variables, direct=options)
        overrides = {**self.get_option("overrides")}
        if self.get_option("nccl"):
            overrides["nccl"] = {**overrides.get("nccl", {}), **self.get_option("nccl")}
        folders = profile_dirs((variables or {}).get("ansible_inventory_sources") or ())
        try:
            # through JSON: plain text and numbers, without Ansible's tags
            hardware, stack, tuning = json.loads(json.dumps(terms))
            resolved = resolve(hardware, stack, tuning, overrides=json.loads(json.dumps(overrides)), extra_dirs=folders)
        except NodectlError as error:
            # Ansible prints each cause again
            raise AnsibleError(". ".join(part for part in (error.message, error.remedy) if part)) from None
        return [{**resolved.as_variables(), "uv": {"path": find_uv_bin(), "machine": platform.machine()}}]

# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible lookup: a program of this collection that a node runs at each boot, as text."""

from __future__ import annotations

DOCUMENTATION = r"""
name: boot_program
short_description: A program of this collection that a node runs at each boot
description: Gives the source of a file of the collection's module_utils, which the module of the role imports too.
author: The nodectl authors (!UNKNOWN)
options:
  _terms: {description: "Names without .py: gpu_hw, nic_hw.", required: true}
"""
EXAMPLES = r"""
text: "{{ lookup('nodectl.fleet.boot_program', 'nic_hw') }}"
"""
RETURN = r"""
_raw: {description: The source., type: list, elements: str}
"""

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

FOLDER = Path(__file__).resolve().parent.parent / "module_utils"
PROGRAMS = ("gpu_hw", "nic_hw")


class LookupModule(LookupBase):  # type: ignore[misc]  # Ansible ships no types
    """Reads below the collection's own plugins, wherever that is installed."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **options: Any) -> list[str]:
        """One text a name; AnsibleError for a name that is no such program."""
        if unknown := [term for term in terms if term not in PROGRAMS]:
            raise AnsibleError(f"{unknown[0]!r} is no program that runs at boot: give one of {', '.join(PROGRAMS)}")
        return [(FOLDER / f"{term}.py").read_text(encoding="utf-8") for term in terms]

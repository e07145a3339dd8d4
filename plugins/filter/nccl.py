# SPDX-License-Identifier: Apache-2.0
"""Ansible filter: why variables may not stand in NCCL's file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.nodectl.fleet.plugins.module_utils import nccl_variables


class FilterModule:
    """The class in which Ansible looks for filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """{name of a filter: its function}."""
        return {"nccl_refusals": nccl_variables.refusals}

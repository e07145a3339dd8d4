# SPDX-License-Identifier: Apache-2.0 (goes together with the GNU General Public License v3.0 of Ansible itself)
"""Ansible filters: what a host's look and its stack profile mean for NVIDIA's packages."""

from __future__ import annotations

DOCUMENTATION = r"""
name: driver_mode
short_description: Whether the host's driver is managed or only looked at
description:
  - A driver that works, that NVIDIA's installer or a DGX release put there, or that comes from elsewhere, is kept.
author: The nodectl authors (!UNKNOWN)
positional: wanted, asked
options:
  _input: {description: The host's look., type: dict, required: true}
  wanted: {description: The stack's driver., type: dict, required: true}
  asked: {description: The operator's nodectl_driver; empty where not set., type: str, default: ""}
"""
EXAMPLES = r"""
mode: "{{ node | driver_mode(fleet.stack.driver, nodectl_driver | default('')) }}"
"""
RETURN = r"""
_value: {description: keep or manage., type: str}
"""

from collections.abc import Callable, Mapping
from typing import Any

Look = Mapping[str, Any]


def driver_packages(wanted: Mapping[str, Any] | None) -> list[str]:
    """Names of the wanted driver's package, the most exact first."""
    from nodectl.profiles import driver_policy as policy  # here: roles take the other filters without nodectl

    return policy.driver_packages(wanted["branch"], wanted["flavour"]) if wanted else []


def driver_mode(node: Look, wanted: Mapping[str, Any] | None, asked: str = "") -> str:
    """`asked` where it says something; else keep what works or is not ours."""
    from nodectl.profiles import driver_policy as policy

    return policy.driver_policy(node["driver"], wanted, asked)


def driver_objection(node: Look, mode: str) -> str:
    """Why a managed driver cannot be on this host; empty where it can."""
    driver = node["driver"]
    if mode != "manage":
        return ""
    if driver["origin"] == "dgx":
        return "a DGX release owns this host's driver (/etc/dgx-release)"
    if driver["origin"] == "run":
        return "NVIDIA's own installer put a driver here (nvidia-uninstall removes it)"
    strange = [package["name"] for package in driver["packages"] if package["from"] != "nvidia"]
    if strange:
        return f"the driver here comes from another source than NVIDIA's repository: {', '.join(strange[:6])}"
    return f"a driver of unknown origin, {driver['version']}, is loaded" if driver["origin"] == "foreign" else ""


def gpu_work(node: Look) -> str:
    """Processes on a GPU, as one line, without the driver's own services."""
    own = ("nvidia-persiste", "nv-hostengine", "nv-fabricmanage", "nvidia-smi")
    users = [f"{user['name']} (pid {user['pid']})" for user in node["gpu_users"] if user["name"] not in own]
    return f"a GPU is in use by {', '.join(users)}: stop them first" if users else ""


def nvidia_pins(stack: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The packages of a stack whose version is fixed; only NCCL's pin may give way to its nearest."""
    pins = []
    toolkit = stack.get("toolkit") or {}
    if toolkit.get("version"):
        pins.append({"name": toolkit["package"], "version": toolkit["version"], "nearest": False})
    for key in ("system_cudnn", "system_nccl"):
        for name, version in ((stack.get(key) or {}).get("packages") or {}).items():
            pins.append({"name": name, "version": version, "nearest": key == "system_nccl"})
    return pins


def wanted_package(name: str, version: str | None = None, nearest: bool = False) -> dict[str, Any]:
    """One package as the module apt_pinned takes it."""
    return {"names": [name], "version": version, "nearest": nearest}


def wanted_packages(versions: Mapping[str, str], nearest: bool = False) -> list[dict[str, Any]]:
    """Packages and their versions as the module apt_pinned takes them."""
    return [wanted_package(name, version, nearest) for name, version in sorted(versions.items())]


class FilterModule:
    """Where Ansible looks for filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """{name of a filter: its function}."""
        return {
            "driver_mode": driver_mode,
            "driver_objection": driver_objection,
            "driver_packages": driver_packages,
            "gpu_work": gpu_work,
            "nvidia_pins": nvidia_pins,
            "wanted_package": wanted_package,
            "wanted_packages": wanted_packages,
        }

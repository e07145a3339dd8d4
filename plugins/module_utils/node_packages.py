"""Which package manager a node has: dpkg and apt, or rpm and dnf; what both answer, in one form."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Union

from ansible_collections.nodectl.fleet.plugins.module_utils.apt import packages as apt_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import Apt
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf import packages as dnf_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf.run import Dnf

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible.module_utils.basic import AnsibleModule

    Manager = Union[Apt, Dnf]
    Packages = dict[str, dict[str, Any]]


def has_dnf(root: str = "/") -> bool:
    """Its packages are rpm's: dnf is there, and dpkg has installed nothing."""
    if os.path.exists(os.path.join(root, apt_packages.STATUS.lstrip("/"))):
        return False
    return os.path.isdir(os.path.join(root, "etc/dnf"))


def manager(module: AnsibleModule, root: str = "/") -> Manager:
    """What installs packages there."""
    return Dnf(module, root) if has_dnf(root) else Apt(module, root)


def installed_now(root: str = "/") -> Packages:
    """The node's packages: version, selection (`hold` where kept at it), state, auto."""
    return dnf_packages.installed_now(root) if has_dnf(root) else apt_packages.installed_now()

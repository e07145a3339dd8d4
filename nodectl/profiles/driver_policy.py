"""Whether a GPU driver is nodectl's to manage, or kept as it is: decided once, for validation and the roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

DriverPolicy = Literal["keep", "manage"]
# a driver of these origins is not nodectl's to replace
OWNED = ("dgx", "run", "foreign")


def driver_packages(branch: str, flavour: str) -> list[str]:
    """Names under which NVIDIA's repository has the branch, the most exact first: from 590 on they carry no branch."""
    meta = "nvidia-open" if flavour == "open" else "cuda-drivers"
    return [f"{meta}-{branch}", meta]


def driver_stream(branch: str, flavour: str) -> str:
    """Under which stream of the module nvidia-driver NVIDIA's rhel repositories have the branch, built by DKMS."""
    return f"{branch}-open" if flavour == "open" else f"{branch}-dkms"


def driver_policy(driver: Mapping[str, Any], wanted: Mapping[str, Any] | None, asked: str | None) -> DriverPolicy:
    """`asked` where it says something; else managed is what is not there, or is NVIDIA's package of the branch.

    `driver` is node_look's: version, origin, packages [{name, version, from}]; `wanted` the stack's: branch, flavour.
    """
    if asked in ("keep", "manage"):
        return "manage" if asked == "manage" else "keep"
    if not wanted or driver.get("origin", "none") in OWNED:
        return "keep"
    packages = driver.get("packages", ())
    if not packages:
        # nothing is installed: what is loaded all the same belongs to somebody
        return "keep" if driver.get("version") else "manage"
    names, branch = driver_packages(wanted["branch"], wanted["flavour"]), f"{wanted['branch']}."
    ours = any(
        package["from"] == "nvidia" and package["name"] in names and package["version"].startswith(branch)
        for package in packages
    )
    return "manage" if ours else "keep"

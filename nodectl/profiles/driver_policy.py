"""The decision whether a GPU driver is nodectl's to manage, or kept as it is.

Made once, for validation and the roles.
"""

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


def precompiled_driver(wanted: Mapping[str, Any], row: Mapping[str, Any] | None, system: str) -> dict[str, Any]:
    """Return the stack's driver with modules that somebody else has built, or `refused` with why there are none.

    `row` is the family's (families.yml); names, origin, stream, beside, module, others and enrolled come from it, the
    module's name with {kernel} or {plain} left in it.
    """
    if row is None:
        why = f"nobody builds precompiled modules for {system}: set nvidia_driver_modules to dkms"
        return {**wanted, "modules": "dkms", "refused": why}
    if wanted["flavour"] not in row["flavours"]:
        there = ", ".join(row["flavours"])
        way = f"set nodectl_overrides: {{stack: {{driver: {{flavour: {row['flavours'][0]}}}}}}}"
        why = f"precompiled modules for {system} are {there}, and the stack's are {wanted['flavour']}: {way}"
        return {**wanted, "modules": "dkms", "refused": f"{why}, or nvidia_driver_modules to dkms"}

    def named(text: str) -> str:
        filled = text.replace("{branch}", wanted["branch"])
        return filled.replace("{open}", "-open" if wanted["flavour"] == "open" else "")

    made = {name: named(row[name]) for name in ("module", "stream")}
    many = {name: [named(text) for text in row[name]] for name in ("beside", "others")}
    names = [named(row["driver"])] if row["driver"] else driver_packages(wanted["branch"], wanted["flavour"])
    kept = {"origin": row["origin"], "enrolled": row["enrolled"], "modules": "precompiled", "names": names}
    return {**wanted, **made, **many, **kept}


def driver_policy(driver: Mapping[str, Any], wanted: Mapping[str, Any] | None, asked: str | None) -> DriverPolicy:
    """`asked` where it says something; else managed is what is not there, or is NVIDIA's package of the branch.

    `driver` is node_look's: version, origin, packages [{name, version, from}]; `wanted` the stack's: branch, flavour,
    and names and origin where its modules are precompiled.
    """
    if asked in ("keep", "manage"):
        return "manage" if asked == "manage" and wanted else "keep"
    if not wanted or driver.get("origin", "none") in OWNED:
        return "keep"
    packages = driver.get("packages", ())
    if not packages:
        # nothing is installed: what is loaded all the same belongs to somebody
        return "keep" if driver.get("version") else "manage"
    names = wanted.get("names") or driver_packages(wanted["branch"], wanted["flavour"])
    branch, origin = f"{wanted['branch']}.", wanted.get("origin", "nvidia")
    ours = any(
        package["from"] == origin and package["name"] in names and package["version"].startswith(branch)
        for package in packages
    )
    return "manage" if ours else "keep"

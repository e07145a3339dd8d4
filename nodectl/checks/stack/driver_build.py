"""Why an installed NVIDIA driver is not loaded: DKMS built no module for this kernel, or Secure Boot refuses it."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges
from nodectl.checks.stack.versions import numbers
from nodectl.facts.driver_build import DriverBuild, Tree
from nodectl.facts.modules import Modules
from nodectl.facts.packages import Packages
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.driver_policy import driver_packages
from nodectl.profiles.schema import Driver

ORDER = 34

DRIVER_BUILD = Check(
    "driver_build",
    looks_at="DKMS and Secure Boot, live",
    fires="the installed driver has no module for the running kernel; warning: Secure Boot on, nvidia not loaded",
    expected="modules signed by an enrolled key",
    roles=("nvidia_driver",),
)


@judges(DRIVER_BUILD, reads=("driver_build", "modules", "packages", "lab"))
def driver_build(host: Subject) -> Iterator[Finding]:
    """Only where the stack needs a driver: what DKMS has beside it is somebody else's."""
    build, modules = host.fact("driver_build", DriverBuild), host.fact("modules", Modules)
    wanted = host.wanted.stack.driver if host.wanted else None
    if build is None or wanted is None or host.borrows("sys"):
        return
    tree = _tree(host, build, wanted)
    if tree:
        actual = f"{tree.modules} modules of {tree.version}"
        if not tree.modules:
            actual = f"none of {tree.version}; {tree.log or 'no log of a build'}"
        remedy = f"install linux-headers-{build.kernel}, then: dkms autoinstall -k {build.kernel}"
        expected = f"a module for {build.kernel}"
        status = failed_unless(tree.modules > 0)
        yield host.finding(DRIVER_BUILD, status, "DKMS", expected=expected, actual=actual, remedy=remedy)
    if build.secure_boot and modules and "nvidia" not in modules.loaded:
        remedy = "enrol the key that signs DKMS modules (mokutil --import), or switch Secure Boot off"
        actual = "on, nvidia not loaded"
        yield host.finding(DRIVER_BUILD, Status.WARNING, "Secure Boot", actual=actual, remedy=remedy)


def _tree(host: Subject, build: DriverBuild, wanted: Driver) -> Tree | None:
    """That of the driver's package, which may lie beside those of drivers before it; without one the newest.

    A package whose modules are not DKMS's to build has none.
    """
    packages = host.fact("packages", Packages)
    names = driver_packages(wanted.branch, wanted.flavour) if packages else []
    installed = [packages.installed[name].version for name in names if packages and name in packages.installed]
    if installed:
        version = installed[0].partition("-")[0]
        return next((tree for tree in build.trees if tree.version == version), None)
    return max(build.trees, key=lambda tree: numbers(tree.version), default=None)

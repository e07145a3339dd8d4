"""Why an installed NVIDIA driver is not loaded: DKMS built no module for this kernel, or Secure Boot refuses it."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges
from nodectl.facts.driver_build import DriverBuild
from nodectl.facts.modules import Modules
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 34

DRIVER_BUILD = Check(
    "driver_build",
    looks_at="DKMS and Secure Boot, live",
    fires="no module of the driver for the running kernel; warning: Secure Boot is on and nvidia is not loaded",
    expected="modules signed by an enrolled key",
    roles=("nvidia_driver",),
)


@judges(DRIVER_BUILD, reads=("driver_build", "modules", "lab"))
def driver_build(host: Subject) -> Iterator[Finding]:
    """Only where the stack needs a driver: what DKMS has beside it is somebody else's."""
    build, modules = host.fact("driver_build", DriverBuild), host.fact("modules", Modules)
    if build is None or host.wanted is None or host.wanted.stack.driver is None or host.borrows("sys"):
        return
    if build.dkms:
        actual = f"{build.modules} modules of {build.dkms}"
        if not build.modules:
            actual = f"none; {build.log or 'no log of a build'}"
        remedy = f"install linux-headers-{build.kernel}, then: dkms autoinstall -k {build.kernel}"
        expected = f"a module for {build.kernel}"
        status = failed_unless(build.modules > 0)
        yield host.finding(DRIVER_BUILD, status, "DKMS", expected=expected, actual=actual, remedy=remedy)
    if build.secure_boot and modules and "nvidia" not in modules.loaded:
        remedy = "enrol the key that signs DKMS modules (mokutil --import), or switch Secure Boot off"
        actual = "on, nvidia not loaded"
        yield host.finding(DRIVER_BUILD, Status.WARNING, "Secure Boot", actual=actual, remedy=remedy)

"""The system's packages that the stack names, on hosts that nodectl provisioned: there, in that version, and held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from nodectl.checks.check import Check, Subject, failed_unless, judges
from nodectl.facts.packages import Packages
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.schema import Stack

ORDER = 33


def _check(name: str, looks_at: str) -> Check:
    return Check(
        name,
        looks_at=f"{looks_at}, as dpkg has it, live on hosts that nodectl provisioned",
        fires="not there, or another version; warning: not held, or the nearest to a pin that no repository has",
        remedy=f"`nodectl provision --tags {name}`",
        roles=(name,),
    )


CUDA = _check("cuda", "the stack's toolkit")
CUDNN = _check("cudnn", "the system's cuDNN")
NCCL = _check("nccl", "the system's NCCL")
DCGM = _check("dcgm", "DCGM")
RDMA = Check(
    "rdma_packages",
    looks_at="the programs of RDMA, as dpkg has them, live on hosts that nodectl provisioned",
    fires="not installed, where the hardware profile has RDMA",
    expected="installed",
    remedy="`nodectl provision --tags rdma`",
    roles=("rdma",),
)
# as in roles/rdma/defaults/main.yml, unless the inventory names others
RDMA_PACKAGES = ("rdma-core", "ibverbs-utils", "perftest", "infiniband-diags")


@judges(CUDA, CUDNN, NCCL, DCGM, reads=("packages",))
def packages(host: Subject) -> Iterator[Finding]:
    """Nothing where the stack names none; what torch's wheel brings is no part of this."""
    found, stack = host.facts.get("packages"), host.wanted.stack if host.wanted else None
    if found is None or host.wanted is None or stack is None or "stack" not in host.wanted.names:
        return
    wanted = _wanted(stack)
    for check in wanted:
        yield from host.unknown(found, "the stack's packages", check)
    if not isinstance(found, Packages):
        return
    for check, versions in wanted.items():
        for name, version in sorted(versions.items()):
            yield _package(host, check, name, version, found)
    # the package of DCGM 3, which comes in the way of DCGM 4
    old = found.installed.get("datacenter-gpu-manager")
    if stack.dcgm and old:
        yield host.finding(DCGM, Status.FAILED, old.name, expected="absent", actual=old.version)


@judges(RDMA, reads=("packages",), variables=("rdma_packages",))
def rdma(host: Subject) -> Iterator[Finding]:
    """Any version of theirs will do."""
    found, nics = host.facts.get("packages"), host.wanted.hardware.nics if host.wanted else ()
    if not isinstance(found, Packages) or not any(nic.kind in ("infiniband", "roce") for nic in nics):
        return
    for name in host.variables.get("rdma_packages") or RDMA_PACKAGES:
        there = found.installed.get(name)
        actual = there.version if there else "not installed"
        yield host.finding(RDMA, failed_unless(there is not None), name, actual=actual)


def _wanted(stack: Stack) -> dict[Check, Mapping[str, str | None]]:
    """Versions by package, None for any."""
    system = stack.system
    return {
        CUDA: {system.toolkit.package: system.toolkit.version} if system.toolkit else {},
        CUDNN: dict(system.cudnn.packages) if system.cudnn else {},
        NCCL: dict(system.nccl.packages) if system.nccl else {},
        DCGM: dict.fromkeys(stack.dcgm),
    }


def _package(host: Subject, check: Check, name: str, version: str | None, found: Packages) -> Finding:
    expected, there = version or "installed", found.installed.get(name)
    if there is None:
        return host.finding(check, Status.FAILED, name, expected=expected, actual="absent")
    if version is None or fnmatchcase(there.version, version):
        if there.held:
            return host.finding(check, Status.OK, name, expected=expected, actual=there.version)
        remedy = f"`apt-mark hold {name}`, or provision again"
        actual = f"{there.version}, not held"
        return host.finding(check, Status.WARNING, name, expected=expected, actual=actual, remedy=remedy)
    suffix = version.partition("+")[2]
    if check is NCCL and suffix and there.version.endswith(f"+{suffix}"):
        actual = f"{there.version}: the nearest for the same CUDA, where the repository has no {version}"
        remedy = "none needed where training loads torch's own NCCL; else point nvidia_repo_baseurl at a mirror"
        return host.finding(check, Status.WARNING, name, expected=expected, actual=actual, remedy=remedy)
    return host.finding(check, Status.FAILED, name, expected=expected, actual=there.version)

"""What roles have installed of the stack: the launcher, the system's packages, the driver's modules, nccl-tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from nodectl.checks.check import Check, Subject, failed_unless, judges, judges_fact, provision
from nodectl.checks.network.infiniband import rdma_of_profile
from nodectl.checks.stack.versions import agree, numbers
from nodectl.common import node_paths
from nodectl.facts.environment import Launcher, NcclTests, NcclTestsBuild
from nodectl.facts.kernel import Kernel, Modules
from nodectl.facts.packages import DriverBuild, NvidiaRepository, Packages, Tree
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.addresses import addresses
from nodectl.profiles.driver_policy import driver_packages
from nodectl.profiles.families import Family, family_of
from nodectl.profiles.schema import Driver, Stack

ORDER = 32

LAUNCHER = Check(
    "launcher",
    fires="it does not run, or torchrun is not there",
    roles=("launcher",),
)


@judges_fact(Launcher, LAUNCHER, reads=("launcher",), unread="runs", where=lambda host: host.has_torch)
def launcher(host: Subject, launcher: Launcher) -> Iterator[Finding]:
    """Only where nodectl has provisioned something, and a stack is named."""
    rows = (("", "runs", launcher.error, "launcher"), ("torchrun", "executable", launcher.torchrun_error, "pytorch"))
    for subject, expected, error, role in rows:
        status, actual = failed_unless(not error), error or expected
        yield host.finding(LAUNCHER, status, subject, expected=expected, actual=actual, remedy=provision(role))


def _check(name: str) -> Check:
    return Check(
        name,
        fires="not there, or another version; warning: not held, or the nearest to a pin that no repository has",
        remedy=f"`nodectl provision --tags {name}`",
        roles=(name,),
    )


CUDA = _check("cuda")
CUDNN = _check("cudnn")
NCCL = _check("nccl")
DCGM = _check("dcgm")
RDMA = Check(
    "rdma_packages",
    fires="not installed, where the hardware profile has RDMA",
    expected="installed",
    remedy="`nodectl provision --tags rdma`",
    roles=("rdma",),
)


@judges_fact(
    Packages,
    *(CUDA, CUDNN, NCCL, DCGM),
    reads=("packages", "kernel"),
    unread="the stack's packages",
    where=lambda host: host.has_stack,
)
def packages(host: Subject, packages: Packages) -> Iterator[Finding]:
    """Compare the system's packages with the stack's; what torch's wheel brings is no part of this."""
    stack = host.wanted.stack if host.wanted else None
    if stack is None:
        return
    for check, versions in _wanted(_family(host).stack(stack)).items():
        for name, version in sorted(versions.items()):
            yield _package(host, check, name, version, packages)
    # the package of DCGM 3, which comes in the way of DCGM 4
    old = packages.installed.get("datacenter-gpu-manager")
    if stack.dcgm and old:
        yield host.finding(DCGM, Status.FAILED, old.name, expected="absent", actual=old.version)


@judges(RDMA, reads=("packages", "kernel"), variables=("rdma_packages",))
def rdma(host: Subject) -> Iterator[Finding]:
    """Any version of theirs will do."""
    packages = host.fact("packages", Packages)
    if packages is None or not rdma_of_profile(host):
        return
    for name in host.variables.get("rdma_packages") or _family(host).rdma:
        there = packages.installed.get(name)
        actual = there.version if there else "not installed"
        yield host.finding(RDMA, failed_unless(there is not None), name, actual=actual)


def _family(host: Subject) -> Family:
    kernel = host.fact("kernel", Kernel)
    return family_of(kernel.os_id if kernel else None)


def _wanted(stack: Stack) -> dict[Check, Mapping[str, str | None]]:
    system = stack.system
    return {
        CUDA: {system.toolkit.package: system.toolkit.version} if system.toolkit else {},
        CUDNN: dict(system.cudnn.packages) if system.cudnn else {},
        NCCL: dict(system.nccl.packages) if system.nccl else {},
        DCGM: dict.fromkeys(stack.dcgm),
    }


def _package(host: Subject, check: Check, name: str, version: str | None, packages: Packages) -> Finding:
    expected, there = version or "installed", packages.installed.get(name)
    if there is None:
        return host.finding(check, Status.FAILED, name, expected=expected, actual="absent")
    if version is None or fnmatchcase(there.version, version):
        if there.held:
            return host.finding(check, Status.OK, name, expected=expected, actual=there.version)
        remedy = f"`{_family(host).remedies.hold} {name}`, or provision again"
        actual = f"{there.version}, not held"
        return host.finding(check, Status.WARNING, name, expected=expected, actual=actual, remedy=remedy)
    suffix = version.partition("+")[2]
    if check is NCCL and suffix and there.version.endswith(f"+{suffix}"):
        actual = f"{there.version}: the nearest for the same CUDA, where the repository has no {version}"
        remedy = "none needed where training loads torch's own NCCL; else point nvidia_repo_baseurl at a mirror"
        return host.finding(check, Status.WARNING, name, expected=expected, actual=actual, remedy=remedy)
    return host.finding(check, Status.FAILED, name, expected=expected, actual=there.version)


DRIVER_BUILD = Check(
    "driver_build",
    fires=(
        "the installed driver has no module for the running kernel; warning: none for the one that the next boot "
        "starts, or Secure Boot on and nvidia not loaded"
    ),
    expected="modules signed by an enrolled key",
    roles=("nvidia_driver",),
)


@judges(DRIVER_BUILD, reads=("driver_build", "modules", "packages", "kernel", "lab"))
def driver_build(host: Subject) -> Iterator[Finding]:
    """Only where the stack needs a driver: what DKMS has beside it is somebody else's."""
    build, modules = host.fact("driver_build", DriverBuild), host.fact("modules", Modules)
    wanted = host.wanted.stack.driver if host.wanted else None
    if build is None or wanted is None or host.borrows("sys"):
        return
    tree = _tree(host, build, wanted)
    if tree:
        failed = f"none of {tree.version}; {tree.log or 'no log of a build'}"
        actual = f"{tree.modules} modules of {tree.version}" if tree.modules else failed
        headers = _family(host).headers.format(kernel=build.kernel)
        remedy = f"install {headers}, then: dkms autoinstall -k {build.kernel}"
        expected = f"a module for {build.kernel}"
        status = failed_unless(tree.modules > 0)
        yield host.finding(DRIVER_BUILD, status, "DKMS", expected=expected, actual=actual, remedy=remedy)
    yield from _next_boot(host, build)
    if build.secure_boot and modules and "nvidia" not in modules.loaded:
        remedy = "enrol the key that signs DKMS modules (mokutil --import), or switch Secure Boot off"
        actual = "on, nvidia not loaded"
        yield host.finding(DRIVER_BUILD, Status.WARNING, "Secure Boot", actual=actual, remedy=remedy)


def _next_boot(host: Subject, build: DriverBuild) -> Iterator[Finding]:
    """Whoever builds the modules, each kernel needs its own; DKMS has spoken of the running one."""
    kernel, there = build.next_kernel, build.with_module
    if not kernel or not there or (kernel == build.kernel and build.trees):
        return
    expected = f"a module for {kernel}"
    if kernel in there:
        yield host.finding(DRIVER_BUILD, Status.OK, "next boot", expected=expected, actual="there")
        return
    actual, remedy = f"none; there is one for {', '.join(there)}", f"before a reboot: {_way_to_module(host, build)}"
    yield host.finding(DRIVER_BUILD, Status.WARNING, "next boot", expected=expected, actual=actual, remedy=remedy)


def _way_to_module(host: Subject, build: DriverBuild) -> str:
    packages, kernel = host.fact("packages", Packages), build.next_kernel
    built = [name for name in packages.installed if name.startswith("linux-modules-nvidia-")] if packages else []
    named = [
        f"install {name.replace(built_kernel, kernel)}"
        for name in built
        for built_kernel in build.with_module
        if built_kernel in name
    ]
    if named:
        return f"{named[0]}, or provision again"
    if build.trees:
        return f"install {_family(host).headers.format(kernel=kernel)}, then: dkms autoinstall -k {kernel}"
    return "provision again, which brings the driver's modules for it, or boot another kernel"


def _tree(host: Subject, build: DriverBuild, wanted: Driver) -> Tree | None:
    """Return the DKMS tree of the driver's package, the newest without one; None if DKMS does not build it."""
    packages = host.fact("packages", Packages)
    if packages and any(fnmatchcase(name, "linux-modules-nvidia-*") for name in packages.installed):
        return None
    names = driver_packages(wanted.branch, wanted.flavour) if packages else []
    installed = [packages.installed[name].version for name in names if packages and name in packages.installed]
    if installed:
        version = installed[0].partition("-")[0]
        return next((tree for tree in build.trees if tree.version == version), None)
    return max(build.trees, key=lambda tree: numbers(tree.version), default=None)


NCCL_TESTS = Check(
    "nccl_tests",
    fires="not built from the stack's source, NCCL and toolkit, or they load another NCCL; warning: no nvcc",
    expected="built",
    remedy=provision("nccl_tests"),
    roles=("nccl_tests",),
)


def _nccl_tests_version(host: Subject) -> str | None:
    return host.wanted.stack.nccl_tests if host.wanted else None


@judges_fact(
    NcclTests,
    NCCL_TESTS,
    reads=("nccl_tests",),
    or_absent=True,
    where=lambda host: bool(_nccl_tests_version(host)),
)
def nccl_tests(host: Subject, tests: NcclTests) -> Iterator[Finding]:
    """Require that the programs measure the NCCL that training loads."""
    version = _nccl_tests_version(host)
    program = f"{node_paths.NCCL_TESTS}/{version}/all_reduce_perf"
    if not tests.cuda:
        remedy = "give the stack a toolkit, or set nccl_tests_cuda_home"
        yield host.finding(NCCL_TESTS, Status.WARNING, program, actual="not built: no nvcc", remedy=remedy)
        return
    build = next((build for build in tests.builds if build.note.get("version") == version), None)
    if build is None or build.note.get("nccl") != tests.headers or build.note.get("cuda") not in tests.cuda:
        actual = "built from something else" if build else "not there"
        yield host.finding(NCCL_TESTS, Status.FAILED, program, actual=actual)
        return
    yield from _loaded(host, tests, build)


def _loaded(host: Subject, tests: NcclTests, build: NcclTestsBuild) -> Iterator[Finding]:
    own_library, library = tests.own_library, build.library
    status = failed_unless(bool(own_library) and library == own_library)
    if library and not own_library:
        status = Status.WARNING
    expected = own_library or "the NCCL inside torch"
    yield host.finding(NCCL_TESTS, status, "library", expected=expected, actual=library or "no libnccl")
    # the file of a library carries its version, where it carries any
    version = library.rpartition(".so.")[2]
    if version.count("."):
        status = failed_unless(agree(version, tests.headers))
        yield host.finding(NCCL_TESTS, status, "headers", expected=version, actual=tests.headers)
    if build.run_error is not None:
        expected, status = "no wrong value", failed_unless(not build.run_error)
        yield host.finding(NCCL_TESTS, status, "run", expected=expected, actual=build.run_error or expected)


NVIDIA_REPOSITORY = Check(
    "nvidia_repository",
    fires="not one source of NVIDIA's packages, other candidates than the stack's, upgrades of drivers",
    remedy=provision("nvidia_repository"),
    roles=("nvidia_repository",),
)
# NVIDIA's layout below any host; a mirror keeps it, and the machine-learning repository had it too
_LAYOUT = re.compile(r"/compute/(cuda|machine-learning)/repos/")
# as in roles/nvidia_repository/defaults/main.yml, unless the inventory names others
FROZEN = (
    *("^cuda-drivers", "^firmware-nvidia-", "^lib.*-nvidia", "^libcuda1", "^libcudadebugger1", "^libnvcuvid1"),
    *("^libnvidia-", "^libnvoptix1", "^libnvsdm", "^libxnvctrl", "^nvidia-", "^nvlink5", "^nvlsm"),
    *("^linux-(generic|headers|image|modules|nvidia|objects|signatures)", "^xserver-xorg-video-nvidia"),
)


@judges_fact(
    NvidiaRepository,
    NVIDIA_REPOSITORY,
    reads=("nvidia_repository",),
    unread="one source",
    or_absent=True,
    where=lambda host: host.has_stack and bool(host.wanted and host.wanted.stack.cuda),
    variables=("nvidia_repo_baseurl", "nvidia_repository_frozen"),
)
def nvidia_repository(host: Subject, repository: NvidiaRepository) -> Iterator[Finding]:
    """Compare apt's source, lists and candidates with the stack's, and dnf's source and its signatures."""
    base = str(host.variables.get("nvidia_repo_baseurl") or addresses().nvidia.base_url).rstrip("/")
    base_pattern = re.compile(rf"{re.escape(base)}/(ubuntu|debian|rhel)[0-9]+/(x86_64|sbsa)/?")
    sources = {(file, uri) for file, uri in repository.sources if base_pattern.fullmatch(uri) or _LAYOUT.search(uri)}
    actual = ", ".join(sorted({file for file, _ in sources})) or "no source"
    yield host.finding(NVIDIA_REPOSITORY, failed_unless(len(sources) == 1), base, expected="one source", actual=actual)
    if repository.manager == "dnf":
        files = ", ".join(sorted({file for file, _ in sources & set(repository.unchecked)}))
        status, actual = failed_unless(not files), f"not checked by {files}" if files else "checked"
        yield host.finding(NVIDIA_REPOSITORY, status, "signatures", expected="checked", actual=actual)
        return
    is_read = any(_list_name(uri) in name for _, uri in sources for name in repository.lists)
    actual, remedy = "read" if is_read else "apt has not read it", "apt-get update"
    yield host.finding(
        NVIDIA_REPOSITORY, failed_unless(is_read), "lists", expected="read", actual=actual, remedy=remedy
    )
    for check, versions in _wanted(host.wanted.stack).items() if host.wanted else ():
        for name, version in versions.items():
            if version is not None:
                yield _candidate(host, name, version, repository, nearest=check is NCCL)
    wanted = host.variables.get("nvidia_repository_frozen", FROZEN)
    expected = "leave alone what nvidia_repository_frozen says: driver, fabric manager, kernel"
    if wanted != FROZEN:
        expected = f"leave alone: {', '.join(wanted) or 'nothing'}"
    touched = [name for name in wanted if name not in repository.frozen]
    actual = f"may touch {', '.join(touched)}" if touched else expected
    yield host.finding(
        NVIDIA_REPOSITORY, failed_unless(not touched), "unattended upgrades", expected=expected, actual=actual
    )


def _list_name(uri: str) -> str:
    return f"{uri.rstrip('/')}/".partition(":/")[2].replace("_", "%5f").replace("/", "_").lstrip("_")


def _candidate(host: Subject, name: str, version: str, repository: NvidiaRepository, *, nearest: bool) -> Finding:
    """Return the finding on a package's candidate; with `nearest`, another version for the same CUDA may stand in."""
    actual, suffix = repository.candidates.get(name, "(none)"), version.partition("+")[2]
    stands_in = nearest and bool(suffix) and version not in repository.offered.get(name, ())
    status = failed_unless(fnmatchcase(actual, version) or (stands_in and actual.endswith(f"+{suffix}")))
    return host.finding(NVIDIA_REPOSITORY, status, name, expected=version, actual=actual)

"""Packages of the distribution, NVIDIA's repository, what DKMS built, and the files of nodectl's roles."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from nodectl.common import node_paths
from nodectl.common.counting import counted
from nodectl.facts.base import script, shell, text_fact
from nodectl.model.recording import Command

_PATTERNS = (
    *("cuda-toolkit-*", "cuda-drivers*", "nvidia-open*", "nvidia-fabricmanager*", "libcudnn*", "libnccl*"),
    *("datacenter-gpu-manager*", "rdma-core", "ibverbs-utils", "perftest", "infiniband-diags", "doca-ofed"),
    # as RHEL and NVIDIA's repositories for it have them
    *("nvidia-fabric-manager", "libibverbs-utils"),
)
# as in plugins/module_utils/apt.py: a driver's part has such a name and a driver's version
DRIVER_FAMILY = (
    *("cuda-drivers*", "firmware-nvidia-*", "lib*-nvidia*", "libcuda1", "libcudadebugger1", "libnvcuvid1"),
    *("libnvidia-*", "libnvoptix1", "libnvsdm*", "libxnvctrl*", "nvidia-*", "nvlink5*", "xserver-xorg-video-nvidia*"),
)
# as in plugins/module_utils/dnf.py: what has another name with rpm
RPM_FAMILY = ("kmod-nvidia-*", "libXNVCtrl*", "xorg-x11-nvidia*")
DRIVER_MODULES = ("linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*")
DRIVER_VERSION = r"^[3-9][0-9][0-9]\.[0-9][0-9]"
_LOCKS = "/etc/dnf/plugins/versionlock.list"
_RPM_FORM = "%{NAME}\\t%{EPOCHNUM}\\t%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"
# dpkg-query ends badly where a pattern fits nothing, and says so; rpm's lines are those with tabs
_PACKAGES_SHOW = f"""\
[ -d {node_paths.ROOT} ] || exit 3
if command -v dpkg-query >/dev/null && [ -e /var/lib/dpkg/status ]; then
  dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Abbrev}}\\n' "$@" 2>/dev/null
  exit 0
fi
command -v rpm >/dev/null || exit 3
rpm -qa --queryformat '{_RPM_FORM}' "$@" {" ".join(f"'{each}'" for each in RPM_FAMILY)}
[ ! -e {_LOCKS} ] || awk '/^[^#!]/ {{ print "lock\\t" $0 }}' {_LOCKS}
exit 0
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; `held` at its version by dpkg's selection, or a lock of dnf's versionlock."""

    name: str
    version: str
    held: bool

    @property
    def is_driver(self) -> bool:
        """A part of the GPU driver, or its fabric manager."""
        if _fits(self.name, DRIVER_MODULES):
            return True
        return _fits(self.name, (*DRIVER_FAMILY, *RPM_FAMILY)) and re.search(DRIVER_VERSION, self.version) is not None


@dataclass(frozen=True, slots=True)
class Packages:
    """Packages of NVIDIA and of RDMA that are wholly installed, by name, with what keeps them at their version."""

    installed: Mapping[str, Package]


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _packages_words(packages: Packages) -> str:
    named = [package for package in packages.installed.values() if _fits(package.name, _PATTERNS)]
    return ", ".join(f"{package.name} {package.version}" for package in named) or "none"


def _parse_packages(text: str) -> Packages:
    if "\t" in text:
        return Packages(dict(_of_rpm(text)))
    rows = [row for line in text.splitlines() if len(row := line.split()) == 3 and row[2][1] == "i"]
    return Packages({name: Package(name, version, status[0] == "h") for name, version, status in rows})


def _of_rpm(text: str) -> Iterator[tuple[str, Package]]:
    rows = [line.split("\t") for line in text.splitlines()]
    locks = [row[1] for row in rows if row[0] == "lock" and len(row) == 2]
    for row in rows:
        if len(row) == 4:
            name, epoch, version, arch = row
            held = any(_locks(lock, name, (version, f"{epoch}:{version}"), arch) for lock in locks)
            yield name, Package(name, version, held)


def _locks(lock: str, name: str, versions: tuple[str, ...], arch: str) -> bool:
    """Return it as dnf reads a lock: a package in a version, with or without release, epoch and architecture."""
    spelled = [f"{name}-{text}" for version in versions for text in (version, version.rpartition("-")[0])]
    return lock != name and any(
        fnmatchcase(text, lock) for spelling in spelled for text in (spelling, f"{spelling}.{arch}")
    )


PACKAGES_FACT = text_fact(
    "packages",
    Command("packages", ("sh", "-c", _PACKAGES_SHOW, "sh", *_PATTERNS, *DRIVER_FAMILY, *DRIVER_MODULES)),
    _parse_packages,
    _packages_words,
    absent=f"no {node_paths.ROOT} there, or neither dpkg nor rpm",
    row=508,
    occasion="live",
)


@dataclass(frozen=True, slots=True)
class NvidiaRepository:
    """NVIDIA's repository: sources, lists, candidates, what upgrades leave alone; of dnf the sources.

    `sources` are pairs of a file and an address. `unchecked` are sources of dnf whose packages it takes without a
    signature. `lists` are the Release files that apt has read.
    """

    sources: tuple[tuple[str, str], ...]
    lists: tuple[str, ...]
    candidates: Mapping[str, str]
    offered: Mapping[str, tuple[str, ...]]
    frozen: frozenset[str]
    manager: Literal["apt", "dnf"] = "apt"
    unchecked: tuple[tuple[str, str], ...] = ()


def _parse_nvidia_repository(text: str) -> NvidiaRepository:
    rows: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        kind, *cells = line.split("\t")
        rows.setdefault(kind, []).append(cells)
    offered: dict[str, tuple[str, ...]] = {}
    for name, version in rows.get("offered", ()):
        offered[name] = (*offered.get(name, ()), version)
    return NvidiaRepository(
        sources=tuple((file, address) for file, address in rows.get("source", ())),
        lists=tuple(name for (name,) in rows.get("list", ())),
        candidates=dict(rows.get("candidate", ())),
        offered=offered,
        frozen=frozenset(name for (name,) in rows.get("frozen", ())),
        manager="dnf" if "dnf" in rows else "apt",
        unchecked=tuple((file, address) for file, address in rows.get("unchecked", ())),
    )


NVIDIA_REPOSITORY_FACT = text_fact(
    "nvidia_repository",
    script("nvidia-repository"),
    _parse_nvidia_repository,
    lambda found: f"{counted(len(found.sources), 'source')}, {counted(len(found.candidates), 'candidate')}",
    absent="neither apt nor dnf there",
    row=509,
    occasion="verify",
)


@dataclass(frozen=True, slots=True)
class Tree:
    """A driver's `version` of DKMS, the `modules` that it built for this kernel, the end of a failed build's log."""

    version: str
    modules: int
    log: str


@dataclass(frozen=True, slots=True)
class DriverBuild:
    """Reasons why an installed NVIDIA driver is not loaded, now or after a reboot.

    `trees` are DKMS', also of drivers before; `with_module` the kernels that have a module of the driver, whoever built
    it; `next_kernel` is the one that the next boot starts, empty where /boot has none (a container's is its host's).
    """

    kernel: str
    trees: tuple[Tree, ...]
    secure_boot: bool
    with_module: tuple[str, ...] = ()
    next_kernel: str = ""


def _parse_driver_build(text: str) -> DriverBuild:
    rows = [line.split("\t") for line in text.splitlines()]
    values = {row[0]: row[1] for row in rows if len(row) == 2}
    trees = tuple(Tree(row[1], int(row[2]), row[3]) for row in rows if len(row) == 4 and row[0] == "dkms")
    with_module = tuple(row[1] for row in rows if len(row) == 2 and row[0] == "module")
    return DriverBuild(values["kernel"], trees, values.get("secure_boot") == "1", with_module, values.get("next", ""))


def _driver_build_words(build: DriverBuild) -> str:
    trees = ", ".join(f"DKMS {tree.version} with {tree.modules} modules" for tree in build.trees)
    after = f"; modules for {', '.join(build.with_module)}; the next boot starts {build.next_kernel}"
    return f"{trees or 'DKMS none'} for {build.kernel}{after if build.with_module and build.next_kernel else ''}"


DRIVER_BUILD_FACT = text_fact(
    "driver_build",
    script("driver-build", hardware=True),
    _parse_driver_build,
    _driver_build_words,
    absent="neither DKMS nor EFI has anything to tell, and no kernel has a module of the driver",
    row=604,
    occasion="live",
)


RECORDS = "/var/lib/nodectl"
LIMITS = (
    "/etc/security/limits.d/90-nodectl.conf",
    "/etc/systemd/system.conf.d/90-nodectl.conf",
    "/etc/systemd/user.conf.d/90-nodectl.conf",
    "/etc/systemd/logind.conf.d/90-nodectl.conf",
)
NIC = "/etc/nodectl/nic.json"
GPU = "/etc/nodectl/gpu.json"
# {file: the role's own record of what it holds}; the service of a role, and the program that it runs
SERVICES = {
    NIC: ("/etc/systemd/system/nodectl-nic.service", "/opt/nodectl/lib/nic_hw.py"),
    GPU: ("/etc/systemd/system/nodectl-gpu.service", "/opt/nodectl/lib/gpu_hw.py"),
}
GPU_RECORD = f"{RECORDS}/gpu_settings.json"
_PATHS = (f"{RECORDS}/runs", GPU_RECORD, *LIMITS, *SERVICES, *(path for paths in SERVICES.values() for path in paths))


@dataclass(frozen=True, slots=True)
class RoleFiles:
    """Files by which nodectl's roles have a boot set things again, the services that a boot starts, and systemd."""

    present: frozenset[str]
    enabled: frozenset[str]
    systemd: bool


def _parse_role_files(text: str) -> RoleFiles:
    lines = text.splitlines()
    enabled = frozenset(line.partition(" ")[2] for line in lines if line.startswith("enabled "))
    return RoleFiles(frozenset(line for line in lines if line.startswith("/")), enabled, "systemd" in lines)


ROLE_FILES_FACT = text_fact(
    "role_files",
    script("role-files", shell("role-files", records=RECORDS, paths=" ".join(_PATHS))),
    _parse_role_files,
    lambda files: f"{counted(len(files.present), 'file')} of nodectl's roles",
    absent=f"no run in {RECORDS}/runs there",
    row=511,
    occasion="live",
)

"""Whether what holds now also holds after the next boot: kernel settings, and the files that roles of nodectl wrote."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges, judges_fact, provision, warning_unless
from nodectl.checks.kernel.settings import is_held
from nodectl.checks.network.nics import training_names
from nodectl.facts.packages import GPU, GPU_RECORD, LIMITS, NIC, SERVICES, RoleFiles
from nodectl.facts.settings import SysctlFiles
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 13
OURS = "90-nodectl.conf"

KERNEL_SETTINGS_AT_BOOT = Check(
    "kernel_settings_boot",
    fires="warning: a boot sets another value than the tuning's, and by which file; or no file has it",
    roles=("kernel_settings",),
)
ROLE_FILES = Check(
    "role_files",
    fires="warning: one is gone, or a boot does not start it",
    roles=("limits", "nic", "gpu_settings"),
    roles_of={
        **dict.fromkeys(LIMITS, ("limits",)),
        **dict.fromkeys((NIC, *SERVICES[NIC]), ("nic",)),
        **dict.fromkeys((GPU, *SERVICES[GPU]), ("gpu_settings",)),
    },
)


@judges(KERNEL_SETTINGS_AT_BOOT, reads=("sysctl_files", "sysctl"))
def kernel_settings(host: Subject) -> Iterator[Finding]:
    """Compare each key that can be set here with the last word of all files."""
    wanted = host.wanted.tuning.sysctl if host.wanted else {}
    files, live = host.facts.get("sysctl_files"), host.fact("sysctl", dict) or {}
    if not wanted:
        return
    yield from host.unread(KERNEL_SETTINGS_AT_BOOT, files, "the tuning's values")
    if not isinstance(files, SysctlFiles):
        return
    for key, setting in sorted(wanted.items()):
        if key in live and not live[key].fixed:
            yield _at_boot(host, files, key, setting.value, setting.never_lower)


def _at_boot(host: Subject, files: SysctlFiles, key: str, wanted: str, never_lower: bool) -> Finding:
    boot = files.of(key)
    if boot is None:
        status, actual, remedy = Status.WARNING, "in no file: gone at the next boot", provision("kernel_settings")
    else:
        status = warning_unless(is_held(boot.value, wanted, never_lower))
        actual = f"{boot.value}, by {boot.file}"
        ours = posixpath.basename(boot.file) == OURS
        remedy = provision("kernel_settings") if ours else f"take {key} out of {boot.file}, which has the last word"
    return host.finding(KERNEL_SETTINGS_AT_BOOT, status, key, expected=wanted, actual=actual, remedy=remedy)


@judges_fact(RoleFiles, ROLE_FILES, reads=("role_files",), unread="the roles' files", variables=("nodectl_nics",))
def role_files(host: Subject, files: RoleFiles) -> Iterator[Finding]:
    """Require the files of roles whose work the tuning asks for, and that a boot starts their services."""
    tuning = host.wanted.tuning if host.wanted else None
    if tuning is None:
        return
    paths = list(LIMITS) if tuning.limits else []
    nic = tuning.nic
    if (nic.mtu or nic.rings or nic.irq) and training_names(host):
        paths += _of_service(NIC, files)
    if GPU_RECORD in files.present:
        paths += _of_service(GPU, files)
    for path in paths:
        (role,) = ROLE_FILES.roles_of[path]
        unit = posixpath.basename(path)
        actual = "there" if path in files.present else "gone: the next boot sets nothing by it"
        if path in files.present and unit.endswith(".service") and unit not in files.enabled:
            actual = "not enabled: the next boot does not start it"
        status = warning_unless(actual == "there")
        yield host.finding(ROLE_FILES, status, path, expected="there", actual=actual, remedy=provision(role))


def _of_service(settings: str, files: RoleFiles) -> tuple[str, ...]:
    """Return the service's files; without systemd the settings lie there for whoever starts them."""
    return (settings, *SERVICES[settings]) if files.systemd else (settings,)

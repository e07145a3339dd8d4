"""The running kernel, its distribution, its boot, its modules, and settings that are no sysctl."""

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, entry, output, whole
from nodectl.model.facts import Kernel
from nodectl.model.recording import Command, Recording
from nodectl.model.system import Boot, KernelKnobs, Modules
from nodectl.parsers.linux.os_release import parse_os_release

# NAME VALUE a line; equal governors of neighbouring CPUs are counted together
_KNOBS = """\
show() { value=; read -r value 2>/dev/null <"$2" || [ -n "$value" ] || return 0; printf '%s\\t%s\\n' "$1" "$value"; }
cpu=/sys/devices/system/cpu
show cmdline /proc/cmdline
show transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
show transparent_hugepage_defrag /sys/kernel/mm/transparent_hugepage/defrag
# a setting is given only to who takes it at once, and the shell takes byte by byte
printf 'numa_balancing\\t%s\\n' "$(cat /proc/sys/kernel/numa_balancing 2>/dev/null)"
printf 'taint\\t%s\\n' "$(cat /proc/sys/kernel/tainted 2>/dev/null)"
show smt $cpu/smt/control
show frequency_driver $cpu/cpu0/cpufreq/scaling_driver
show idle_driver $cpu/cpuidle/current_driver
show clocksource /sys/devices/system/clocksource/clocksource0/current_clocksource
show tuned_profile /etc/tuned/active_profile
last= many=0
for file in $cpu/cpu[0-9]*/cpufreq/scaling_governor; do
  read -r value 2>/dev/null <"$file" || continue
  if [ "$value" != "$last" ]; then
    [ "$many" -eq 0 ] || printf 'governor\\t%s\\t%s\\n' "$last" "$many"
    last=$value many=0
  fi
  many=$((many + 1))
done
[ "$many" -eq 0 ] || printf 'governor\\t%s\\t%s\\n' "$last" "$many"
if [ -d /sys/kernel/iommu_groups ]; then
  set -- /sys/kernel/iommu_groups/*
  [ -e "$1" ] || set --
  printf 'iommu_groups\\t%s\\n' "$#"
fi
"""


def _read(recording: Recording) -> Kernel:
    words = output(recording, "uname").split()
    if len(words) != 3:
        raise ParseError(f"uname line 1: {' '.join(words)!r}")
    try:
        release = parse_os_release(entry(recording, "os-release").stdout)
    except (AbsentError, UnknownError, ParseError):
        release = {}  # the kernel is known without its distribution
    name, version, architecture = words
    return Kernel(name, version, architecture, release.get("ID"), release.get("VERSION_ID"), release.get("PRETTY_NAME"))


def _boot(recording: Recording) -> Boot:
    words = output(recording, "boot").split()
    try:
        boot_id, uptime_s = words[0], float(words[1])
    except (IndexError, ValueError) as error:
        raise ParseError(f"boot: {' '.join(words)!r}: a boot's id and the seconds since are missing") from error
    return Boot(boot_id, uptime_s)


def _modules(recording: Recording) -> Modules:
    names = [line.split(" ", 1)[0] for line in output(recording, "modules").splitlines() if line.strip()]
    return Modules(tuple(sorted(name.replace("-", "_") for name in names)))


def _knobs(recording: Recording) -> KernelKnobs:
    found: dict[str, str] = {}
    governors: dict[str, int] = {}
    for line in output(recording, "kernel-knobs").splitlines():
        name, _, value = line.partition("\t")
        if name == "governor":
            governor, _, many = value.partition("\t")
            if not many.isdigit():
                raise ParseError(f"kernel-knobs: {line!r} counts no CPUs")
            governors[governor] = governors.get(governor, 0) + int(many)
        else:
            found[name] = value.strip()
    if not found:
        raise UnknownError("kernel-knobs: nothing was shown")
    return KernelKnobs(
        transparent_hugepage=_chosen(found.get("transparent_hugepage")),
        transparent_hugepage_defrag=_chosen(found.get("transparent_hugepage_defrag")),
        governors=governors,
        cmdline=found.get("cmdline"),
        smt=found.get("smt"),
        frequency_driver=found.get("frequency_driver"),
        idle_driver=found.get("idle_driver"),
        clocksource=found.get("clocksource"),
        tuned_profile=found.get("tuned_profile"),
        numa_balancing=whole(found.get("numa_balancing")),
        iommu_groups=whole(found.get("iommu_groups")),
        taint=whole(found.get("taint")),
    )


def _chosen(text: str | None) -> str | None:
    """`always [madvise] never` is madvise."""
    if text is None:
        return None
    return text.partition("[")[2].partition("]")[0] or text


FACT = Fact(
    "kernel",
    lambda venv: (
        Command("uname", ("uname", "-srm"), hardware=True),
        Command("os-release", ("cat", "/etc/os-release"), hardware=True),
    ),
    _read,
)
BOOT = Fact(
    "boot",
    lambda venv: (Command("boot", ("cat", "/proc/sys/kernel/random/boot_id", "/proc/uptime"), hardware=True),),
    _boot,
)
MODULES = Fact("modules", lambda venv: (Command("modules", ("cat", "/proc/modules"), hardware=True),), _modules)
KNOBS = Fact("kernel_knobs", lambda venv: (Command("kernel-knobs", ("sh", "-c", _KNOBS), hardware=True),), _knobs)

"""Settings of the kernel that are no sysctl: huge pages, governors, SMT, IOMMU, taint, command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.base import UnknownError, or_unknown, script, text_fact, whole

# NAME VALUE a line; equal governors of neighbouring CPUs are counted together
_SHOW = """\
show() { value=; read -r value 2>/dev/null <"$2" || [ -n "$value" ] || return 0; printf '%s\\t%s\\n' "$1" "$value"; }
cpu=/sys/devices/system/cpu
show cmdline /proc/cmdline
show transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
show transparent_hugepage_defrag /sys/kernel/mm/transparent_hugepage/defrag
# a setting is given only to who takes it at once, and the shell takes byte by byte
settings=$(grep -sH '' /proc/sys/kernel/numa_balancing /proc/sys/kernel/tainted)
case $settings in */numa_balancing:*) balancing=${settings#*:} ;; *) balancing= ;; esac
case $settings in */tainted:*) taint=${settings##*:} ;; *) taint= ;; esac
printf 'numa_balancing\\t%s\\ntaint\\t%s\\n' "${balancing%%[!0-9]*}" "$taint"
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
_COUNTS = {"numa_balancing", "iommu_groups", "taint"}
_CHOICES = {"transparent_hugepage", "transparent_hugepage_defrag"}


@dataclass(frozen=True, slots=True)
class KernelKnobs:
    """Settings of the kernel that are no sysctl; `governors` counts the CPUs of each frequency governor."""

    cmdline: str | None = None
    transparent_hugepage: str | None = None
    transparent_hugepage_defrag: str | None = None
    governors: Mapping[str, int] = field(default_factory=dict)
    frequency_driver: str | None = None
    numa_balancing: int | None = None
    smt: str | None = None
    idle_driver: str | None = None
    clocksource: str | None = None
    iommu_groups: int | None = None
    taint: int | None = None
    tuned_profile: str | None = None


def _parse(text: str) -> KernelKnobs:
    values: dict[str, str] = {}
    governors: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.partition("\t")
        if name == "governor":
            governor, _, cpus = value.partition("\t")
            if not cpus.isdigit():
                raise ParseError(f"kernel-knobs: {line!r} counts no CPUs")
            governors[governor] = governors.get(governor, 0) + int(cpus)
        else:
            values[name] = value.strip()
    if not values:
        raise UnknownError("kernel-knobs: nothing was shown")
    typed: dict[str, Any] = {name: values[name] for name in values.keys() & set(KernelKnobs.__slots__)}
    typed |= {name: whole(typed[name]) for name in typed.keys() & _COUNTS}
    typed |= {name: _chosen(typed[name]) for name in typed.keys() & _CHOICES}
    return KernelKnobs(governors=governors, **typed)


def _chosen(text: str) -> str:
    """`always [madvise] never` is madvise."""
    return text.partition("[")[2].partition("]")[0] or text


def _words(knobs: KernelKnobs) -> str:
    governors = ", ".join(sorted(knobs.governors)) or "no governor"
    pages = f"huge pages {knobs.transparent_hugepage or '?'}"
    return f"{governors}, {pages}, NUMA balancing {or_unknown(knobs.numa_balancing)}"


FACT = text_fact("kernel_knobs", script("kernel-knobs", _SHOW, hardware=True), _parse, _words, row=320)

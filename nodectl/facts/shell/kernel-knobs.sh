# shellcheck shell=sh
# NAME VALUE a line; equal governors of neighbouring CPUs are counted together

show() { value=; read -r value 2>/dev/null <"$2" || [ -n "$value" ] || return 0; printf '%s\t%s\n' "$1" "$value"; }
cpu=/sys/devices/system/cpu
show cmdline /proc/cmdline
show transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
show transparent_hugepage_defrag /sys/kernel/mm/transparent_hugepage/defrag
# a setting is given only to who takes it at once, and the shell takes byte by byte
settings=$(grep -sH '' /proc/sys/kernel/numa_balancing /proc/sys/kernel/tainted)
case $settings in */numa_balancing:*) balancing=${settings#*:} ;; *) balancing= ;; esac
case $settings in */tainted:*) taint=${settings##*:} ;; *) taint= ;; esac
printf 'numa_balancing\t%s\ntaint\t%s\n' "${balancing%%[!0-9]*}" "$taint"
show smt $cpu/smt/control
show frequency_driver $cpu/cpu0/cpufreq/scaling_driver
show idle_driver $cpu/cpuidle/current_driver
show clocksource /sys/devices/system/clocksource/clocksource0/current_clocksource
show tuned_profile /etc/tuned/active_profile
last= many=0
for file in $cpu/cpu[0-9]*/cpufreq/scaling_governor; do
  read -r value 2>/dev/null <"$file" || continue
  if [ "$value" != "$last" ]; then
    [ "$many" -eq 0 ] || printf 'governor\t%s\t%s\n' "$last" "$many"
    last=$value many=0
  fi
  many=$((many + 1))
done
[ "$many" -eq 0 ] || printf 'governor\t%s\t%s\n' "$last" "$many"
if [ -d /sys/kernel/iommu_groups ]; then
  set -- /sys/kernel/iommu_groups/*
  [ -e "$1" ] || set --
  printf 'iommu_groups\t%s\n' "$#"
fi

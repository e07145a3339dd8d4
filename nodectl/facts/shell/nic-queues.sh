# shellcheck shell=sh
# NAME NUMA CPUS a line, then lines of it: irq N CPUS, and `ethtool -g` as it is; last how the settings are kept

cd /sys/class/net || exit
for name in *; do
  cd -P "/sys/class/net/$name/device/subsystem" && bus=$PWD || bus= # readlink would be a process
  cd /sys/class/net || exit
  [ "$bus" = /sys/bus/pci ] || continue
  numa= cpus=
  read -r numa <"$name/device/numa_node"
  read -r cpus <"$name/device/local_cpulist"
  printf 'nic\t%s\t%s\t%s\n' "$name" "$numa" "$cpus"
  for each in "$name"/device/msi_irqs/*; do
    irq=${each##*/} affinity=
    read -r affinity <"/proc/irq/$irq/smp_affinity_list" || continue
    printf 'irq\t%s\t%s\n' "$irq" "$affinity"
  done
  echo
  ethtool -g "$name"
done 2>/dev/null

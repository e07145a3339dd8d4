# shellcheck shell=sh
# NAME VALUE a line

cd /sys/class/dmi/id 2>/dev/null && for name in sys_vendor product_name bios_version bios_date; do
  value=
  read -r value 2>/dev/null <$name && printf '%s\t%s\n' "$name" "$value"
done
awk '/^microcode[ \t]*: / && !seen[$0]++ { sub(/[ \t]*: /, "\t"); print }' /proc/cpuinfo 2>/dev/null
for disk in /sys/class/nvme/nvme*; do
  model= firmware=
  read -r model 2>/dev/null <"$disk/model" && read -r firmware <"$disk/firmware_rev" || continue
  printf 'nvme\t%s\t%s\n' "$model" "$firmware"
done
exit 0

# shellcheck shell=sh
# with the words under which a recording's mask looks for serial numbers

serial=
read -r serial 2>/dev/null </sys/class/dmi/id/product_serial
[ -n "$serial" ] || exit 3
printf 'serial number: %s\n' "$serial"

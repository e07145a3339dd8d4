# shellcheck shell=sh
# PATH:VALUE as grep prints it, below /sys/class/infiniband; of 256 GIDs a port, only those that are set.
# Then where each device sits, and its interfaces: DEVICE/pci:ADDRESS, DEVICE/net/NAME:PORT

cd /sys/class/infiniband 2>/dev/null || exit 3
set -- *
[ -d "$1/ports" ] || exit 3
grep -sH '' */fw_ver */board_id */hca_type */node_guid */device/numa_node */ports/*/state */ports/*/phys_state \
  */ports/*/rate */ports/*/link_layer */ports/*/lid */ports/*/sm_lid */ports/*/counters/* */ports/*/hw_counters/* \
  */ports/*/gids/* */ports/*/gid_attrs/types/* */ports/*/gid_attrs/ndevs/* | grep -v ':0000:0000:0000:0000$'
for device; do
  printf '%s/pci:%s\n' "$device" "$(readlink "$device/device")"
  for net in "$device"/device/net/*; do
    dev_port=
    [ ! -d "$net" ] || read -r dev_port <"$net/dev_port" || continue
    [ ! -d "$net" ] || printf '%s/net/%s:%s\n' "$device" "${net##*/}" "$dev_port"
  done
done
exit 0

# shellcheck shell=sh
# NAME, then name=value between tabs; only a device of its own has a driver, and only that costs processes

cd /sys/class/net || exit
for name in *; do
  read -r index <"$name/ifindex" || continue
  mac= speed= duplex= driver= firmware= numa= pci=
  read -r mac <"$name/address"
  read -r speed <"$name/speed"
  read -r duplex <"$name/duplex"
  if [ -e "$name/device/driver" ]; then
    # readlink would be a process
    cd -P "/sys/class/net/$name/device/driver" && driver=${PWD##*/}
    cd -P "/sys/class/net/$name/device" && pci=${PWD##*/}
    cd /sys/class/net || exit
    read -r numa <"$name/device/numa_node"
    while IFS=: read -r key value; do
      [ "$key" != firmware-version ] || firmware=${value# }
    done <<EOF
$(ethtool -i "$name")
EOF
  fi
  set -- "$name"/queues/rx-*; rx=$#
  set -- "$name"/queues/tx-*; tx=$#
  printf '%s\tindex=%s\tmac=%s\tspeed=%s\tduplex=%s\tdriver=%s\tpci=%s\tnuma=%s\trx_queues=%s\ttx_queues=%s' \
    "$name" "$index" "$mac" "$speed" "$duplex" "$driver" "$pci" "$numa" "$rx" "$tx"
  printf '\tfirmware=%s\n' "$firmware"
done 2>/dev/null

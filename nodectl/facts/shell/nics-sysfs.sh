# shellcheck shell=sh
# NAME, then name=value between tabs; only a device of its own has a driver, and only that costs processes

cd /sys/class/net || exit
for name in *; do
  read -r index <"$name/ifindex" || continue
  mac= speed= driver= firmware= numa= pci=
  read -r mac <"$name/address"
  read -r speed <"$name/speed"
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
  printf '%s\tindex=%s\tmac=%s\tspeed=%s\tdriver=%s\tpci=%s\tnuma=%s\tfirmware=%s\n' \
    "$name" "$index" "$mac" "$speed" "$driver" "$pci" "$numa" "$firmware"
done 2>/dev/null

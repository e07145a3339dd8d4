# shellcheck shell=sh
# NAME KIND VALUE a line, of interfaces that a RDMA device has

cd /sys/class/infiniband 2>/dev/null || exit 3
set -- */device/net/*
[ -d "$1" ] || exit 3
for each; do
  name=${each##*/} on=
  [ "$(cat "/sys/class/net/$name/type" 2>/dev/null)" = 1 ] || continue
  if command -v dcb >/dev/null 2>&1; then
    pfc=$(dcb pfc show dev "$name" prio-pfc 2>/dev/null | tr -s ' \n' ' ') && printf '%s\tpfc\t%s\n' "$name" "$pfc"
  fi
  for side in roce_np roce_rp; do
    set -- "/sys/class/net/$name/ecn/$side/enable/"*
    [ -e "$1" ] && printf '%s\t%s\t%s\n' "$name" "$side" "$(cat "$@" 2>/dev/null | tr -d '\n')"
  done
done
exit 0

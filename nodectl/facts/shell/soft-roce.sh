# shellcheck shell=sh

for each in /sys/class/infiniband/rxe_*; do [ ! -e "$each" ] || printf 'device %s\n' "${each##*/}"; done
[ -d /sys/module/rdma_rxe ] || modinfo rdma_rxe >/dev/null 2>&1 || echo 'cannot its kernel has no module rdma_rxe'
[ -d /run/systemd/system ] || echo 'cannot no systemd to bring it up at boot'
exit 0

# shellcheck shell=sh
# `drive FILE` before what the tool says of it

smartctl=$(command -v smartctl) || command -v nvme >/dev/null || exit 3
for drive in @drives@; do
  [ -e "$drive" ] || continue
  if [ -n "$smartctl" ]; then
    set -- @smartctl@ "$drive"
  else
    case $drive in /dev/sd*) continue ;; esac
    set -- @nvme@ "$drive"
  fi
  [ -r "$drive" ] || set -- sudo -n -- "$@"
  printf 'drive %s\n' "$drive"
  "$@"
done
exit 0

# shellcheck shell=sh
# the state folder comes with nodectl's first write: until then its nearest parent tells; a line each, in this order

state=@state@
printf '%s\n' "$state"
while [ -n "$state" ] && [ ! -e "$state" ]; do
  case $state in */*) state=${state%/*} ;; *) state=. ;; esac
done
set -- / "${state:-/}"
[ ! -d /var/log ] || set -- "$@" /var/log
df -kP "$@"
set -- / "${state:-/}"
[ ! -d /home ] || set -- "$@" /home
df -iP "$@"

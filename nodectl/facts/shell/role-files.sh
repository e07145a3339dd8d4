# shellcheck shell=sh
# a run that stands is a folder in `runs`: after a rollback or a trial there is none. Other logins than root cannot look
# into it; most file systems count the folders in one as names of it

[ -d @records@/runs ] || exit 3
if [ -r @records@/runs ]; then
  set -- @records@/runs/*/
  [ -d "$1" ] || exit 3
elif [ "$(stat -c %h @records@/runs 2>/dev/null)" = 2 ]; then
  exit 3
fi
[ -d /run/systemd/system ] && echo systemd
for path in @paths@; do [ -e "$path" ] && printf '%s\n' "$path"; done
for link in /etc/systemd/system/*.wants/nodectl-*.service; do
  [ -L "$link" ] && printf 'enabled %s\n' "${link##*/}"
done
exit 0

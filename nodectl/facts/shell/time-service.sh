# shellcheck shell=sh
# Who lives in another than the first PID namespace shares a machine's clock. The first is told by the kernel's own
# process 2, and where processes of others are hidden by its inode (PROC_PID_INIT_INO), for which readlink is a process.

first= second=
read -r first 2>/dev/null </proc/1/comm
read -r second 2>/dev/null </proc/2/comm
if [ -n "$first" ]; then
  [ "$second" = kthreadd ] && echo own || echo shared
else
  [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ] && echo own || echo shared
fi
found=' '
for each in /proc/[0-9]*/comm; do
  read -r name 2>/dev/null <"$each" || continue
  case $name in @cases@) found="$found$name " ;; esac
done
for name in @names@; do
  case $found in *" $name "*) printf 'service %s\n' "$name" ;; esac
done

# shellcheck shell=sh
# the load; then the hanging processes as ps shows them, and how many there are; mostly none hangs, and ps is dear

read -r load </proc/loadavg && printf 'load %s\n' "$load"
many=$(awk 'BEGIN {
  for (at = 1; at < ARGC; at++) {
    if ((getline row < ARGV[at]) > 0) many++
    close(ARGV[at])
    sub(/.*\) /, "", row)
    if (row ~ /^D/) exit
  }
  print many
}' /proc/[0-9]*/stat)
[ -n "$many" ] && printf 'count %s\n' "$many" ||
  ps -eo stat=,pid=,wchan:32=,etimes=,comm= | awk '/^D/ { print "process", $0 } END { print "count", NR }'

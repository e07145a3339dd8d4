# shellcheck shell=sh
# tuned applies sysctl's files again after its own, unless it is told not to

for file in @folders@ @last@; do
  [ -e "$file" ] && set -- "$@" "$file"
done
awk 'BEGIN {
  for (at = 1; at < ARGC; at++) {
    print "file " ARGV[at]
    while ((getline row < ARGV[at]) > 0) {
      sub(/^[ \t\r\v\f]+/, "", row)
      if (row ~ /^[^#;]/) print "line " row
    }
    close(ARGV[at])
  }
}' "$@"
read -r profiles </etc/tuned/active_profile && ! grep -q '^[[:space:]]*reapply_sysctl *= *\(1\|[Tt]rue\)' \
  /etc/tuned/tuned-main.conf && grep -q '^[[:space:]]*reapply_sysctl' /etc/tuned/tuned-main.conf || exit 0
seen=
tuned() {
  case " $seen " in *" $1 "*) return ;; esac
  seen="$seen $1"
  for at in "/etc/tuned/profiles/$1" "/etc/tuned/$1" "/usr/lib/tuned/profiles/$1" "/usr/lib/tuned/$1"; do
    [ -e "$at/tuned.conf" ] || continue
    for base in $(sed -n 's/^include *= *//p' "$at/tuned.conf" | tr ',' ' '); do tuned "$base"; done
    for at in "/etc/tuned/profiles/$1" "/etc/tuned/$1" "/usr/lib/tuned/profiles/$1" "/usr/lib/tuned/$1"; do
      [ -e "$at/tuned.conf" ] && break
    done
    printf 'file %s\n' "$at/tuned.conf"
    sed -n '/^\[sysctl\]/,/^\[/s/^[[:space:]]*\([^#;[[:space:]].*\)/line \1/p' "$at/tuned.conf" | grep .
    return 0
  done
}
for profile in $profiles; do tuned "$profile"; done

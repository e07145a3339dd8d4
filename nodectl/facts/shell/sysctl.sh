# shellcheck shell=sh
# KEY FIXED VALUE a line, or KEY absent and whether the folder is there that would hold it; FIXED is why no writing is
# possible here, - where it is. A file's mode says what the kernel allows, the mount what a container does (the nearest
# mount above the file decides); neither depends on who asks.
# awk reads, because the kernel gives a setting only to who takes it at once, and shells take byte by byte.

cd /proc/sys || exit 3
for key; do
  [ -e "$key" ] && continue
  if [ -d "${key%/*}" ]; then printf '%s absent folder\n' "$key"; else printf '%s absent nothing\n' "$key"; fi
done
stat -c '%n %A' -- "$@" 2>/dev/null | awk 'BEGIN {
  while ((getline < "/proc/self/mountinfo") > 0)
    if (($5 == "/proc" || index($5, "/proc/sys") == 1) && mounts[$5] != "ro")
      mounts[$5] = ("," $6 "," $NF ",") ~ /,ro,/ ? "ro" : "rw"
  while ((getline < "-") > 0) if ($2 ~ /^..w/) fixed[$1] = "-"
  for (number = 1; number < ARGC; number++) {
    key = ARGV[number]
    why = key in fixed ? "-" : "read-only"
    for (at = "/proc/sys/" key; at != "" && !(at in mounts); ) sub(/\/[^\/]*$/, "", at)
    if (at != "" && mounts[at] == "ro") why = "read-only"
    while ((getline value < key) > 0) print key, why, value
    close(key)
  }
}' "$@"

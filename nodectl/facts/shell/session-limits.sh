# shellcheck shell=sh
# process 1's bounding set says what root can ever do here, and everybody may read it

for each in l n s; do ulimit -S$each; ulimit -H$each; done
while read -r name value; do
  [ "$name" != CapBnd: ] || { printf 'cap %s\n' "$value"; break; }
done </proc/1/status
[ ! -O /proc/1 ] || echo root

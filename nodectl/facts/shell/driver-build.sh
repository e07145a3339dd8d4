# shellcheck shell=sh
# each tree of DKMS (nvidia; nvidia-srv of Ubuntu; nvidia-current, nvidia-tesla-470 and so on of Debian); the log of a
# build that failed is quoted by its last words. modules.dep is what modprobe goes by, whoever built the modules; a boot
# starts the newest kernel, as GRUB takes it

trees='/var/lib/dkms/nvidia*/[3-9][0-9][0-9].*'
# shellcheck disable=SC2086 # it is a pattern
set -- $trees
with=$(grep -lE '/nvidia(-(current|tesla|legacy)[0-9a-z-]*)?[.]ko' /lib/modules/*/modules.dep 2>/dev/null)
[ ! -d "$1" ] && [ ! -e /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c ] && [ -z "$with" ] && exit 3
read -r kernel </proc/sys/kernel/osrelease || kernel=$(uname -r)
printf 'kernel\t%s\n' "$kernel"
[ ! -e /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c ] || printf 'secure_boot\t%s\n' "$(tail -c 1 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c | od -An -tu1 | tr -d ' ')"
for dep in $with; do
  dep=${dep%/modules.dep}
  printf 'module\t%s\n' "${dep##*/}"
done
[ -z "$with" ] || for image in $(printf '%s\n' /boot/vmlinuz-[1-9]* | sort -V); do
  [ ! -e "$image" ] || [ "$image" != "${image%.old}" ] || printf 'next\t%s\n' "${image#/boot/vmlinuz-}"
done
for tree in $trees; do
  [ -d "$tree" ] || continue
  set -- "$tree/$kernel"/*/module/*.ko*
  [ -e "$1" ] || set --
  end=
  for log in "$tree/build/make.log" "$tree/$kernel"/*/log/make.log; do
    [ $# -gt 0 ] || [ -n "$end" ] || [ ! -s "$log" ] ||
      end="$log ends: $(grep -v '^ *$' "$log" | tail -n 3 | tr '\n\t' '  ')"
  done
  printf 'dkms\t%s\t%s\t%s\n' "${tree##*/}" "$#" "$end"
done
exit 0

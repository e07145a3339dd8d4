# shellcheck shell=sh

[ -z "$nccl_conf" ] || printf 'NCCL_CONF_FILE\t%s\n' "$nccl_conf"
file=${nccl_conf:-$home/.nccl.conf}
[ ! -e "$file" ] && [ ! -L "$file" ] || exec cat "$file"
printf 'cat: %s: No such file or directory\n' "$file" >&2
exit 1

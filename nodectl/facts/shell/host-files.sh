# shellcheck shell=sh
# FILE TAB TEXT a line; of what logins read only these assignments: what else stands there is nobody's business

for file in /etc/nccl.conf "${nccl_conf:-$home/.nccl.conf}"; do
  [ -r "$file" ] || continue
  while IFS== read -r name value; do
    [ "$name" != NCCL_TOPO_FILE ] || [ -r "$value" ] || printf 'missing\t%s\n' "$value"
  done <"$file"
done
[ -z "$nccl_conf" ] || [ -r "$nccl_conf" ] || printf 'missing\t%s\n' "$nccl_conf"
set --
for file in /etc/machine-id /etc/hosts /etc/environment /etc/profile /etc/profile.d/*.sh /etc/bash.bashrc \
  /etc/bashrc "$home"/.profile "$home"/.bash_profile "$home"/.bashrc; do
  [ ! -r "$file" ] || set -- "$@" "$file"
done
exec awk -v home="$home/" '
FILENAME == "/etc/machine-id" || FILENAME == "/etc/hosts" { print FILENAME "\t" $0; next }
/^[ \t]*#/ { next }
{
  rest = " " $0
  while (match(rest, /[^A-Za-z0-9_](NCCL_[A-Z0-9_]+|CUDA_[A-Z0-9_]+|LD_LIBRARY_PATH|LD_PRELOAD)=/)) {
    name = substr(rest, RSTART + 1, RLENGTH - 1)
    rest = substr(rest, RSTART + RLENGTH)
    match(rest, /^("[^"]*"|\047[^\047]*\047|[^ \t;&|)]*)/)
    file = index(FILENAME, home) == 1 ? "~/" substr(FILENAME, length(home) + 1) : FILENAME
    print file "\t" name substr(rest, 1, RLENGTH)
    rest = " " substr(rest, RLENGTH + 1)
  }
}' "$@"

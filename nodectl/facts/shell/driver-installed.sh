# shellcheck shell=sh
# Debian's module is nvidia-current or nvidia-tesla-470, which modprobe's configuration names
name=$(modprobe --show-depends nvidia 2>/dev/null | sed -n 's/^install .*modprobe .*\(nvidia-[^ ]*\).*/\1/p')
exec modinfo -F version "${name:-nvidia}"

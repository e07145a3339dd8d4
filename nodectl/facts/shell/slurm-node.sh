# shellcheck shell=sh
# A host belongs to Slurm where slurmd runs or a configuration names it; a client that is installed is no sign.
# Without slurmd the controller is asked for a few seconds only, since an old client looks a minute for its file.

command -v scontrol >/dev/null || exit 127
name=$(uname -n)
name=${SLURMD_NODENAME:-${name%%.*}}
! grep -sqx slurmd /proc/[0-9]*/comm || exec scontrol --oneliner show node "$name"
exec 3>&1
complaint=$(timeout 5 scontrol --oneliner show node "$name" 2>&1 >&3) && exit
status=$?
printf '%s\n' "$complaint" >&2
case $complaint in
*'establish a configuration source'* | *'unable to status file'*) exit 3 ;;
esac
for file in "$SLURM_CONF" /etc/slurm/slurm.conf /etc/slurm-llnl/slurm.conf; do
    [ ! -r "$file" ] || break
done
grep -isq '^ *include' "$file" && exit $status
nodes=$(sed -n 's/^ *[Nn]ode[Nn]ame=\([^ ]*\).*/\1/p' "$file" 2>/dev/null | grep -vix default | paste -sd, -)
names=$(timeout 5 scontrol show hostnames "$nodes" 2>/dev/null) && [ -n "$names" ] || exit $status
printf '%s\n' "$names" | grep -qxF "$name" || exit 3
exit $status

# Runs each command under a deadline and a size cap, and frames its output so that no output can forge a frame:
#   out KEY STATUS BYTES  then that many bytes    STATUS: exit status; 124 deadline, 127 not installed, - cut at the cap
#   err KEY CENTISECONDS BYTES  then that many bytes
# Nothing is written to the host's disk, so that a full one can still be read.
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/cuda/bin
export LC_ALL PATH
cap=16777216
err_cap=65536
exec 3>&1

if command -v timeout >/dev/null 2>&1; then
    limit() { timeout -k 2 "$@"; }
else
    limit() { shift; "$@"; }
fi

clock() { # centiseconds since boot; 1NN - 100 because 08 would be octal
    read -r up _ </proc/uptime
    centiseconds=$((${up%.*} * 100 + 1${up#*.} - 100))
}

run() {
    key=$1 deadline=$2
    shift 2
    # the full stop keeps the newlines at the end, which $() would take away; it drops NUL too, but only after the cap
    out=$( { limit "$deadline" "$@" </dev/null; printf '|%s' "$?"; } | tr -d '\000' | head -c "$cap"; printf .)
    out=${out%.}
    if [ "${#out}" -ge "$cap" ]; then
        status=-
    else
        status=${out##*|}
        out=${out%|*}
    fi
    printf 'out %s %s %s\n%s\n' "$key" "$status" "${#out}" "$out" >&3
}

take() { # KEY DEADLINE_S ARGV...
    clock
    began=$centiseconds
    err=$( { run "$@"; } 2>&1 >/dev/null | head -c "$err_cap")
    clock
    printf 'err %s %s %s\n%s\n' "$1" "$((centiseconds - began))" "${#err}" "$err"
}

printf '\nnodectl-collect/1 %s\n' "$(date +%s.%N)"

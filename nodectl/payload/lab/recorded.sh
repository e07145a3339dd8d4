#!/bin/sh
# Answers for a tool of hardware that this lab host has not, from the recording that it is dressed in.
folder=/var/lib/nodectl-lab/recorded
asked="${0##*/} $*"
tab=$(printf '\t')
known=
# as people type it: without the levels that the collector asks for
if [ "$asked" = "dmesg " ] && [ -e "$folder/dmesg.out" ]; then
    sed 's/^<[0-9]*>//' "$folder/dmesg.out"
    exit 0
fi
while IFS=$tab read -r key argv; do
    if [ "$argv" = "${asked% }" ]; then
        read -r status <"$folder/$key.status"
        cat "$folder/$key.out"
        [ ! -e "$folder/$key.err" ] || cat "$folder/$key.err" >&2
        [ "$status" = cut ] && status=1
        exit "${status:-0}"
    fi
    [ "${argv%% *}" != "${0##*/}" ] || known="$known
  $argv"
done <"$folder/argv"
read -r name <"$folder/name"
echo "${0##*/}: this lab host is dressed in the recording '$name', which knows only:$known" >&2
exit 9

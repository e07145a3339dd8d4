# Runs commands, in groups or one after the other, under deadlines and caps, and prints their outputs in frames that no output
# can forge: every frame begins with a line of `nonce`, which only this shell and its caller know.
#   NONCE out KEY       then what it printed; of a key that comes again the last one counts
#   NONCE end STATUS    exit status, 124 for its deadline, 127 for not installed; missing where the output was cut; the
#                       last one counts
#                       A tool that once did not end in time, or printed without end, is not asked again: 124, and its
#                       standard error says so
#   NONCE took CENTISECONDS [recorded]
#   NONCE done          after the last
#   NONCE err KEY       then what it printed on standard error; after all others
# Nothing is written to the host's disk, so that a full one can still be read. What even KILL does not end (a driver
# that never comes back) is left behind: no pipe that it holds is waited for.
# The caller sets: nonce, budget (seconds for all commands), pack (1: compress where gzip is there), groups (functions
# whose commands are run together).
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/cuda/bin
export LC_ALL PATH
cap=16777216
err_cap=1048576
together_s=10
together_cap=2097152
together=
uid=$(id -u)
# a lab host answers for hardware that it has not from the recording that it is dressed in; other hosts have no mark
dressed=
recording=-
if [ -f /etc/nodectl-lab ] && [ -d /var/lib/nodectl-lab/recorded ]; then
    dressed=/var/lib/nodectl-lab/recorded
    read -r recording <"$dressed/name"
fi

clock() { # centiseconds since boot; 1NN - 100 because 08 would be octal
    read -r up _ </proc/uptime
    centiseconds=$((${up%.*} * 100 + 1${up#*.} - 100))
}

run() { # DEADLINE_S ARGV...
    limit=$1 late= whole=
    shift
    trap 'whole=1' USR2
    {
        at_once "$@"
        kill -USR2 "$self"
    } | head -c "$cap" &
    last=$!
    while :; do
        wait "$last" 2>/dev/null
        kill -0 "$last" 2>/dev/null || break
        clock # a tick woke us
        over=$(((centiseconds - began) / 100 - limit))
        if [ "$over" -ge 4 ]; then
            kill -TERM "$last" # of KILL bash tells in the middle of what the tools said
            late=1
            break
        elif [ "$over" -ge 2 ]; then
            end_all KILL
        elif [ "$over" -ge 0 ]; then
            late=1
            end_all TERM
        fi
    done
    if [ -n "$late" ]; then
        printf '\n%s end 124\n' "$nonce"
        hung="$hung$tool "
    elif [ -z "$whole" ]; then # its reader has enough, and it goes on
        end_all KILL shell
        printf '\nnodectl: cut: %s printed too much\n' "$tool" >&2
        flooding="$flooding$tool "
        cap=$together_cap # so that another of its kind leaves room for all others
    fi
}

not_asked() { # WHY
    printf 'nodectl: not asked: %s\n' "$1" >&2
    printf '\n%s end 124\n' "$nonce"
}

end_all() { # SIGNAL [shell]: to the command, and to all that it started; and to our own shell around it
    rows=
    for stat in /proc/[0-9]*/stat; do
        read -r row <"$stat" || continue
        rest=${row##*) } # a name may hold spaces and brackets
        rest=${rest#* }
        rows="$rows ${rest%% *}:${row%% *}"
    done
    family=
    for row in $rows; do # our own shell around the command: it ends by itself, and its end would orphan the others
        case " $ticker $last " in *" ${row#*:} "*) continue ;; esac
        [ "${row%:*}" != "$self" ] || family=" ${row#*:} "
    done
    around=$family
    more=$family
    while [ -n "$more" ]; do
        more=
        for row in $rows; do
            case $family in *" ${row#*:} "*) continue ;; esac
            case $family in *" ${row%:*} "*) family="$family${row#*:} " more=1 ;; esac
        done
    done
    [ "$2" != shell ] || around=
    for pid in ${family#"$around"}; do
        kill "-$1" "$pid"
    done
} 2>/dev/null

# A script of ours is read by the shell that is there, and starts none; it sees our variables, and sets none of them.
at_once() { # ARGV...
    case "$1 $2" in
        'sh -c') (
            text=$3
            shift 3
            [ $# -eq 0 ] || shift
            eval "$text"
        ) </dev/null ;;
        *) "$@" </dev/null ;;
    esac
    printf '\n%s end %s\n' "$nonce" "$?" || exit
}

# All commands of a group in one shell and under one cap. False where they did not end in time, or said too much: then
# each is to be taken by itself, and its last answer counts.
all_together() { # FUNCTION
    whole=
    trap 'whole=1' USR2
    clock
    began=$centiseconds
    [ "$together_s" -le "$budget" ] || together_s=$budget
    {
        together=1
        "$1"
        kill -USR2 "$self"
    } | head -c "$together_cap" &
    last=$!
    while :; do
        wait "$last" 2>/dev/null
        kill -0 "$last" 2>/dev/null || break
        clock
        [ $(((centiseconds - began) / 100)) -ge "$together_s" ] || continue
        end_all KILL shell
        kill -TERM "$last"
        whole=
    done
    [ -n "$whole" ]
}

answer() { # KEY: what the recording has
    status=0
    [ ! -e "$dressed/$1.status" ] || read -r status <"$dressed/$1.status"
    cat "$dressed/$1.out"
    [ ! -e "$dressed/$1.err" ] || cat "$dressed/$1.err" >&2
    [ "$status" = cut ] || printf '\n%s end %s\n' "$nonce" "$status"
}

take() { # KEY DEADLINE_S LOGIN|root ARGV...
    key=$1 deadline=$2 as=$3 mark=
    shift 3
    case $1 in sh | cat) tool=$key ;; *) tool=$1 ;; esac
    clock
    began=$centiseconds
    left=$((budget - (began - started) / 100))
    [ "$deadline" -le "$left" ] || deadline=$left
    printf '\n%s out %s\n' "$nonce" "$key"
    printf '\n%s err %s\n' "$nonce" "$key" >&2
    if [ -n "$dressed" ] && [ -e "$dressed/$key.out" ]; then
        mark=recorded
        answer "$key"
    elif ! command -v "$1" >/dev/null 2>&1; then
        printf '\n%s end 127\n' "$nonce"
    elif [ "$deadline" -le 0 ]; then
        not_asked 'no time left'
    elif [ "$hung" != "${hung#*" $tool "}" ]; then
        not_asked "$tool hung"
    elif [ "$flooding" != "${flooding#*" $tool "}" ]; then
        not_asked "$tool printed too much"
    elif [ -n "$together" ]; then
        at_once "$@"
    elif [ "$as" != root ] || [ "$uid" -eq 0 ]; then
        run "$deadline" "$@"
    elif command -v sudo >/dev/null 2>&1; then
        run "$deadline" sudo -n -- "$@"
    else
        printf 'sudo: not installed\n' >&2
        printf '\n%s end 1\n' "$nonce"
    fi
    clock
    printf '\n%s took %s %s\n' "$nonce" "$((centiseconds - began))" "$mark"
}

body() {
    read -r self _ </proc/self/stat
    trap : USR1
    (
        exec >/dev/null 2>&1
        while sleep 1 && kill -USR1 "$self"; do :; done
    ) &
    ticker=$!
    clock
    started=$centiseconds
    hung=' ' flooding=' '
    for group in $groups; do
        all_together "$group" || "$group"
    done
    take_alone
    printf '\n%s done\n' "$nonce"
    printf '\n%s stop\n\n' "$nonce" >&2 # and a line more, for a sed that reads ahead
    kill "$ticker"
}

# Standard error comes back at the end, in one piece. It is read up to the stop line and not to its end, which never
# comes where a command was left behind that holds it. Of each command its first 200 lines: one that complains without end
# does not push out what the others said. (No awk: some read no line before their whole buffer is full.)
errors() {
    sed -n "/^$nonce stop\$/{p;q;}
        /^$nonce err /{p;s/.*//;x;d;}
        x;/^.\{200\}/{x;d;}
        s/\$/./;x;p" | tail -c "$err_cap"
}

# by exec, not beside `body`: a shell keeps what it puts aside for a function, and what is left behind would hold it
main() {
    if [ "$pack" = 1 ] && command -v gzip >/dev/null 2>&1; then
        printf '\nnodectl-collect/2 %s gzip %s\n' "$(date +%s.%N)" "$recording"
        { (exec 2>&1 >&3 3>&-; body) | errors; } 3>&1 | gzip -1
    else
        printf '\nnodectl-collect/2 %s plain %s\n' "$(date +%s.%N)" "$recording"
        { (exec 2>&1 >&3 3>&-; body) | errors; } 3>&1
    fi
}

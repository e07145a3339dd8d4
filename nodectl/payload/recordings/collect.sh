# Runs commands, in groups or in lanes, under deadlines and caps, and prints their outputs in frames that no output
# can forge: every frame begins with a line of `nonce`, which only this shell and its caller know.
# A lane is a function that asks one tool all that it is to be asked. Lanes run beside each other, so that tools that
# hang are waited for at the same time.
#   NONCE out KEY       then what it printed; of a key that comes again the last one counts
#   NONCE end STATUS    exit status, 124 for its deadline, 127 for not installed; missing where the output was cut; the
#                       last one counts
#                       A tool that once did not end in time, or printed without end, is not asked again: 124, and its
#                       standard error says so
#   NONCE loud TOOL     it complained without end: what it said on standard error is cut
#   NONCE took CENTISECONDS [recorded]
#   NONCE err KEY       then what it printed on standard error; after all others of its lane, or of the groups
#   NONCE done          after the last
# Nothing is written to the host's disk, so that a full one can still be read. What even KILL does not end (a driver
# that never comes back) is left behind: no pipe that it holds is waited for.
# The caller sets: nonce, budget (seconds for all commands), first_tick (seconds, before which no group is late),
# groups (names of variables, each with the lanes whose commands are run together), GROUP_apart (its lanes where they
# were not done together in time), alone (all other lanes).
LC_ALL=C
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/cuda/bin:/usr/lib/wsl/lib
export LC_ALL PATH
cap=16777216
keep=head # or tail: the command's newest output counts, as of a log
err_cap=1048576
lanes_cap=29360128 # of all lanes: the reader takes 32 MiB of a host
groups_s=13 # all groups, of which each has this long at most, and the last ones at least 3 s
together_s=10
together_cap=2097152
together=
awk=
files=
frames= # those that are printed with what comes next: each print wakes all that read it
looking=
uid=
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
    due=$((began + $1 * 100)) late= whole= ended=
    shift
    trap 'whole=1' USR2
    {
        at_once "$@"
        kill -USR2 "$self"
    } | "$keep" -c "$cap" &
    last=$!
    while :; do
        wait "$last" 2>/dev/null
        kill -0 "$last" 2>/dev/null || break
        clock # a tick woke us, or the command's end
        printf '%s tick\n' "$nonce" >&2 || end_all KILL # nobody reads what it says, and it does not care
        [ "$centiseconds" -ge "$due" ] || continue
        due=$((centiseconds + 90)) # a step a tick, however late ticks come on a busy host
        case $late in
            '') late=TERM && end_all TERM ;;
            TERM) late=KILL && end_all KILL ;;
            *)
                kill -TERM "$last" # of KILL bash tells in the middle of what the tools said
                break
                ;;
        esac
    done
    if [ -n "$late" ]; then
        printf '\n%s end 124\n' "$nonce"
        hung="$hung$tool "
    elif [ -z "$whole" ]; then # its reader has enough, and it goes on
        end_all KILL shell
        printf '\nnodectl: cut: %s printed too much\n' "$tool" >&2
        flooding="$flooding$tool "
    fi
    printf '\n' >&2 || is_loud # its reader had enough
}

is_loud() {
    flooding="$flooding$tool "
    printf '\n%s end 124\n\n%s loud %s\n' "$nonce" "$nonce" "$tool"
}

not_asked() { # WHY
    printf '\n%s end 124\n' "$nonce"
    printf 'nodectl: not asked: %s\n' "$1" >&2 || is_loud
}

end_all() { # SIGNAL [shell]: to the command, and to all that it started; and to our own shell around it
    rows=
    for stat in /proc/[0-9]*/stat; do
        read -r row <"$stat" || continue
        rest=${row##*) } # a name may hold spaces and brackets
        rest=${rest#* }
        rows="$rows ${rest%% *}:${row%% *}"
    done
    around=
    for row in $rows; do # our own shell around the command: it ends by itself, and its end would orphan the others
        case " $ticker $last " in *" ${row#*:} "*) continue ;; esac
        [ "${row%:*}" != "$self" ] || around=" ${row#*:} "
    done
    # TERM may have ended a shell between us and what ignores it: those that were asked then are still meant
    around=${around:- }
    family=$around$ended
    more=1
    while [ -n "$more" ]; do
        more=
        for row in $rows; do
            case $family in *" ${row#*:} "*) continue ;; esac
            case $family in *" ${row%:*} "*) family="$family${row#*:} " more=1 ;; esac
        done
    done
    [ "$2" != shell ] || around=
    ended=${family#"$around"}
    for pid in $ended; do
        kill "-$1" "$pid"
    done
} 2>/dev/null

is_absent() { # FILE: surely so; what is in a folder that we may not look into may be there
    [ ! -e "$1" ] && [ ! -L "$1" ] || return 1
    at=${1%/*}
    while [ -n "$at" ] && [ ! -e "$at" ] && [ ! -L "$at" ]; do at=${at%/*}; done
    [ -x "$at/" ]
}

# A script of ours is read by the shell that is there, and starts none; it sees our variables, and sets none of them.
at_once() { # ARGV...
    case "$1 $2" in
        'sh -c') (
            text=$3
            shift 3
            [ $# -eq 0 ] || shift
            eval "$text"
        ) </dev/null ;;
        'cat /'*) if [ $# -eq 2 ] && is_absent "$2"; then
            printf 'cat: %s: No such file or directory\n' "$2" >&2
            false
        elif [ -n "$together" ] && [ $# -eq 2 ] && [ "${2#/etc/}" != "$2" ] && [ -f "$2" ] && [ -r "$2" ]; then
            rows "$2"
        else
            "$@" </dev/null
        fi ;;
        *) "$@" </dev/null ;;
    esac
    printf '\n%s end %s\n' "$nonce" "$?" || exit
}

rows() { # FILE: as cat, without a process; for short files, because shells read byte by byte
    while IFS= read -r row; do printf '%s\n' "$row"; done <"$1"
    printf '%s' "$row" # of a last line without its end
}

show_files() { # those that take_file has put aside
    [ -z "$files" ] || awk -v nonce="$nonce" 'BEGIN {
        for (at = 1; at <= ARGC; at++) {
            if (at < ARGC && ARGV[at] !~ /^=/) {
                while ((got = (getline row <ARGV[at])) > 0) print row
                if (got < 0) status = 1
                continue
            }
            if (at > 1) printf "\n%s end %d\n\n%s took 0 \n", nonce, status, nonce
            if (at < ARGC) printf "\n%s out %s\n", nonce, substr(ARGV[at], 2)
            status = 0
        }
    }' $files </dev/null
    clock
}

# All commands of a group in one shell and under one cap. False where they did not end in time, or said too much: then
# each is to be taken by itself, and its last answer counts.
all_together() { # LANES...
    whole= ended=
    trap 'whole=1' USR2
    clock
    began=$centiseconds
    left=$((groups_s - (began - started) / 100))
    [ "$left" -ge 3 ] || left=3
    [ "$left" -ge "$together_s" ] || together_s=$left
    [ "$together_s" -le "$budget" ] || together_s=$budget
    {
        together=1
        ! command -v awk >/dev/null 2>&1 || awk=1
        for lane in "$@"; do "$lane"; done
        tell
        show_files
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

is_recorded() { # KEY; not of what the host has got itself since it was dressed
    [ -n "$dressed" ] && [ -e "$dressed/$1.out" ] || return 1
    [ -e "$dressed/$1.unless" ] || return 0
    read -r own <"$dressed/$1.unless"
    [ ! -e "$own" ]
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
    if [ -n "$looking" ]; then
        is_recorded "$key" || ! command -v "$1" >/dev/null 2>&1 || found=1
        return
    fi
    if ! is_recorded "$key" && ! command -v "$1" >/dev/null 2>&1; then
        say "$key" 127
        return
    fi
    began=$centiseconds # the clock was read when the command before ended
    left=$((budget - (began - started) / 100))
    [ "$deadline" -le "$left" ] || deadline=$left
    printf '%s\n%s out %s\n' "$frames" "$nonce" "$key"
    printf '\n%s err %s\n' "$nonce" "$key" >&2
    if is_recorded "$key"; then
        mark=recorded
        answer "$key"
    elif [ "$deadline" -le 0 ]; then
        not_asked 'no time left'
    elif [ "$hung" != "${hung#*" $tool "}" ]; then
        not_asked "$tool hung"
    elif [ "$flooding" != "${flooding#*" $tool "}" ]; then
        not_asked "$tool printed too much"
    elif [ -n "$together" ]; then
        at_once "$@"
    elif [ "$as" != root ] || [ "${uid:=$(id -u)}" -eq 0 ]; then
        run "$deadline" "$@"
    elif command -v sudo >/dev/null 2>&1; then
        run "$deadline" sudo -n -- "$@"
    else
        printf 'sudo: not installed\n' >&2
        printf '\n%s end 1\n' "$nonce"
    fi
    clock
    frames="
$nonce took $((centiseconds - began)) $mark
"
}

say() { # KEY STATUS: of what needs no process
    frames="$frames
$nonce out $1

$nonce end $2

$nonce took 0 
"
}

tell() { # the frames that wait
    printf '%s' "$frames"
    frames=
}

take_newest() { # as take
    keep=tail
    take "$@"
    keep=head
}

# What a group asks of the kernel's files, each of which would be a cat, is shown by one awk at its end. The kernel gives
# some of them only to who takes them at once, and all of them end with a line's end, which awk would add.
take_file() { # as take: KEY DEADLINE_S LOGIN cat FILE...
    if can_show "$@"; then
        file="=$1"
        shift 4
        files="$files $file $*"
    else
        take "$@"
    fi
}

can_show() { # as take_file
    [ -n "$awk" ] && ! is_recorded "$1" || return 1
    shift 4
    for file; do [ -r "$file" ] || return 1; done
}

# A script that has nothing to tell without a folder needs no shell of its own to say so.
ask_in() { # FOLDER KEY DEADLINE_S LOGIN|root ARGV...
    folder=$1
    shift
    if [ -d "$folder" ] || is_recorded "$1"; then
        take "$@"
    elif [ -z "$looking" ]; then
        say "$1" 3
    fi
}

begin() {
    clock
    read -r self _ </proc/self/stat
    trap : USR1
    trap : PIPE # of what is read no more; a command's own shell has it as it was
    (
        exec >/dev/null 2>&1
        sleep "$first_tick"
        while kill -USR1 "$self" && sleep 1; do :; done
    ) &
    ticker=$!
    hung=' ' flooding=' '
}

finish() {
    printf '\n%s stop\n%8192s\n' "$nonce" '' >&2 # and more, for who reads ahead
    kill "$ticker"
}

one_lane() { # LANE
    first_tick=1 # it takes its time
    begin
    "$1"
    tell
    finish
}

# What is answered at once: the groups, and lanes whose tool is not there. Then `only`, the one lane that takes its time:
# nothing is left to run beside it.
all_quick() { # LANES...
    begin
    for lane in "$@"; do "$lane"; done
    tell
    late=
    for group in $groups; do
        eval "lanes=\$$group"
        all_together $lanes && continue
        printf '\n%s again %s\n' "$nonce" "$group"
        late=1
    done
    # where one complained without end, nobody knows what the others said
    if ! printf '\n' >&2; then
        printf "\n$nonce again %s\n" $groups only
    elif [ -n "$late" ]; then # beside those that are asked again
        printf '\n%s again only\n' "$nonce"
    elif [ -n "$only" ]; then
        clock
        "$only"
        tell
    fi
    finish
}

# Standard error comes back at the end, in one piece. It is read up to the stop line and not to its end, which never
# comes where a command was left behind that holds it; so the head, which bounds it for sed whatever its lines are, is
# ended by its number. Of each command its first 200 lines: one that complains without end does not push out what the
# others said. (No awk: some read no line before their whole buffer is full.)
errors() {
    {
        read -r pid _ </proc/self/stat
        printf '%s\n' "$pid"
        exec head -c "$err_cap" 2>/dev/null
    } | {
        read -r pid
        said=$(sed -n "/^$nonce stop\$/q
            /^$nonce err /{p;s/.*//;x;d;}
            /^$nonce tick\$/d;s/$nonce tick\$//
            x;/^.\{200\}/{x;d;}
            s/\$/./;x;p"; echo .)
        kill "$pid" 2>/dev/null
        printf '%s' "${said%.}"
    }
}

# by exec, not beside the function: a shell keeps what it puts aside for one, and what is left behind would hold it
part() { # FUNCTION LANES...
    { (exec 2>&1 >&3 3>&-; "$@") | errors; } 3>&1
}

# All lanes at once, and their answers one after the other: each keeps its own until it has passed on those before it.
beside() { # LANES...
    [ $# -gt 0 ] || { cat; return; }
    lane=$1
    shift
    {
        { held=$(part one_lane "$lane" </dev/null; echo .); } 2>/dev/null # bash tells of each NUL
        cat
        printf '%s' "${held%.}"
    } | beside "$@"
}

take_all() {
    clock
    started=$centiseconds
    slow= quick=
    for lane in $alone; do
        looking=1 found=
        "$lane"
        looking=
        if [ -n "$found" ]; then slow="$slow $lane"; else quick="$quick $lane"; fi
    done
    set -- $slow
    only=
    [ $# -ne 1 ] || { only=$1 && shift; }
    [ $# -eq 0 ] || cap=$((lanes_cap / $#))
    if [ $# -gt 0 ]; then take_quick </dev/null | beside "$@"; else take_quick; fi
    printf '\n%s done\n' "$nonce"
}

take_quick() {
    { held=$(part all_quick $quick; echo .); } 2>/dev/null
    printf '%s' "${held%.}"
    missed=
    for group in $groups; do
        case $held in *"$nonce again $group"*) eval "missed=\"\$missed \$${group}_apart\"" ;; esac
    done
    case $held in *"$nonce again only"*) missed="$missed $only" ;; esac
    held=
    set -- $missed
    [ $# -eq 0 ] || { cap=$((lanes_cap / $#)); beside "$@" </dev/null; }
}

main() {
    if command -v gzip >/dev/null 2>&1; then
        printf '\nnodectl-collect/2 %s gzip %s\n' "$(date +%s.%N)" "$recording"
        take_all | gzip -1
    else
        printf '\nnodectl-collect/2 %s plain %s\n' "$(date +%s.%N)" "$recording"
        take_all
    fi
}

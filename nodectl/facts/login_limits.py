"""The limits that a fresh login gets, read by root: those of a session that is older than the files say nothing."""

from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import script, text_fact
from nodectl.facts.limits import read_limits

# `sshd: /usr/sbin/sshd -D [listener] …` is how a listening sshd shows its command line, on which its settings depend
_SHOW = """\
# the shell reads: id would be a process, twice
while read -r name _ uid _; do [ "$name" != Uid: ] || break; done </proc/self/status
[ "$uid" = 0 ] && command -v runuser >/dev/null || exit 3
user=$SUDO_USER
[ -n "$user" ] || while IFS=: read -r name _ uid _; do
  [ "$uid" != 0 ] || { user=$name; break; }
done </etc/passwd
all='for each in l n s; do ulimit -S$each; ulimit -H$each; done'
set -f
# with -l, which is no other in PAM's limits, each look would be a session for logind and run the user's profile
set -- $(runuser -u "$user" -- /bin/sh -c "$all")
while [ $# -gt 6 ]; do shift; done
login="$* "
set -- $(eval "$all")
session="$* "
printf 'user %s\\nlogin %s\\nsession %s\\n' "$user" "$login" "$session"
[ "$login" != "$session" ] || exit 0
pid=$$
while [ "$pid" -gt 1 ]; do
  name= title=
  read -r name <"/proc/$pid/comm"
  [ "$name" != sshd ] || title=$(tr '\\0' ' ' <"/proc/$pid/cmdline")
  case $title in 'sshd: /'*'[listener]'*) title=${title#sshd: } title=${title%%[*} ;; /*/sshd' '*) ;; *) title= ;; esac
  [ -z "$title" ] || break
  read -r stat <"/proc/$pid/stat" && set -- ${stat##*) } && pid=$2
done
set -- $title
[ $# -gt 0 ] || exit 0
sshd=$1 options=
shift
for word; do case $word in -D | -e) ;; *) options="$options $word" ;; esac; done
printf 'pam %s\\n' "$("$sshd" -T $options | sed -n 's/^usepam //p')"
"""


@dataclass(frozen=True, slots=True)
class LoginLimits:
    """The lower of soft and hard of `user`'s fresh login, and of the session that asked, in limits.conf's units.

    `uses_pam` is that of the SSH server of the session, None where it could not be asked, or where both are alike.
    """

    user: str
    memlock: str | None
    nofile: str | None
    stack: str | None
    session_memlock: str
    session_nofile: str
    uses_pam: bool | None


def _parse(text: str) -> LoginLimits:
    lines = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    if not lines.get("user"):
        raise ParseError(f"login-limits: {text[:200]!r}")
    memlock, nofile, stack = read_limits(lines["login"].split()) if lines.get("login", "").strip() else (None,) * 3
    session = read_limits(lines.get("session", "").split())
    pam = {"yes": True, "no": False}.get(lines.get("pam", "").strip())
    return LoginLimits(lines["user"], memlock, nofile, stack, session[0], session[1], pam)


def _words(limits: LoginLimits) -> str:
    return f"login of {limits.user}: memlock {limits.memlock}, nofile {limits.nofile}, stack {limits.stack}"


FACT = text_fact(
    "login_limits",
    script("login-limits", _SHOW, waits=True),
    _parse,
    _words,
    absent="not asked by root, or no runuser",
    row=411,
    occasion="live",
)

"""Which of the files by which roles of nodectl have a boot set things again are still there."""

from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.facts.base import script, text_fact

RECORDS = "/var/lib/nodectl"
LIMITS = (
    "/etc/security/limits.d/90-nodectl.conf",
    "/etc/systemd/system.conf.d/90-nodectl.conf",
    "/etc/systemd/user.conf.d/90-nodectl.conf",
    "/etc/systemd/logind.conf.d/90-nodectl.conf",
)
NIC = "/etc/nodectl/nic.json"
GPU = "/etc/nodectl/gpu.json"
# {file: the role's own record of what it holds}; the service of a role, and the program that it runs
SERVICES = {
    NIC: ("/etc/systemd/system/nodectl-nic.service", "/opt/nodectl/lib/nic_hw.py"),
    GPU: ("/etc/systemd/system/nodectl-gpu.service", "/opt/nodectl/lib/gpu_hw.py"),
}
GPU_RECORD = f"{RECORDS}/gpu_settings.json"
_PATHS = (f"{RECORDS}/runs", GPU_RECORD, *LIMITS, *SERVICES, *(path for paths in SERVICES.values() for path in paths))
# a run that stands is a folder in `runs`: after a rollback or a trial there is none. Other logins than root cannot look
# into it; most file systems count the folders in one as names of it
_SHOW = f"""\
[ -d {RECORDS}/runs ] || exit 3
if [ -r {RECORDS}/runs ]; then
  set -- {RECORDS}/runs/*/
  [ -d "$1" ] || exit 3
elif [ "$(stat -c %h {RECORDS}/runs 2>/dev/null)" = 2 ]; then
  exit 3
fi
[ -d /run/systemd/system ] && echo systemd
for path in {" ".join(_PATHS)}; do [ -e "$path" ] && printf '%s\\n' "$path"; done
for link in /etc/systemd/system/*.wants/nodectl-*.service; do
  [ -L "$link" ] && printf 'enabled %s\\n' "${{link##*/}}"
done
exit 0
"""


@dataclass(frozen=True, slots=True)
class RoleFiles:
    """The paths that are there, the services that a boot starts, and whether systemd runs."""

    present: frozenset[str]
    enabled: frozenset[str]
    systemd: bool


def _parse(text: str) -> RoleFiles:
    lines = text.splitlines()
    enabled = frozenset(line.partition(" ")[2] for line in lines if line.startswith("enabled "))
    return RoleFiles(frozenset(line for line in lines if line.startswith("/")), enabled, "systemd" in lines)


def _words(files: RoleFiles) -> str:
    return f"{counted(len(files.present), 'file')} of nodectl's roles"


FACT = text_fact(
    "role_files",
    script("role-files", _SHOW),
    _parse,
    _words,
    absent=f"no run in {RECORDS}/runs there",
    row=511,
    occasion="live",
)

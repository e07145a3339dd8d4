"""NCCL's files as they are: /etc/nccl.conf, and the one that NCCL_CONF_FILE names or the login's ~/.nccl.conf."""

from dataclasses import dataclass

from nodectl.common.node_paths import FIND_NCCL_CONF
from nodectl.facts.base import Fact, entry, file_text, listed, script
from nodectl.model.recording import Command, Recording

SYSTEM, HOME = "/etc/nccl.conf", "~/.nccl.conf"
_SYSTEM = Command("nccl-conf", ("cat", SYSTEM))
# no line of NCCL's begins so
_NAMED = "NCCL_CONF_FILE\t"
_OF_LOGIN = """\
[ -z "$nccl_conf" ] || printf 'NCCL_CONF_FILE\\t%s\\n' "$nccl_conf"
file=${nccl_conf:-$home/.nccl.conf}
[ ! -e "$file" ] && [ ! -L "$file" ] || exec cat "$file"
printf 'cat: %s: No such file or directory\\n' "$file" >&2
exit 1
"""
_USER = script("nccl-conf-user", FIND_NCCL_CONF + _OF_LOGIN, waits=True)


@dataclass(frozen=True, slots=True)
class NcclFiles:
    """NCCL's files; None where there is none. The user's, at `user_path`, goes before the system's."""

    system: str | None
    user: str | None
    user_path: str = HOME

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file that is there, the first that NCCL reads first."""
        texts = {self.user_path: self.user, SYSTEM: self.system}
        return {path: text for path, text in texts.items() if text is not None}


def _read(recording: Recording) -> NcclFiles:
    system, user = file_text(recording, _SYSTEM.key), file_text(recording, _USER.key)
    shown = entry(recording, _USER.key).stdout
    if not shown.startswith(_NAMED):
        return NcclFiles(system, user)
    path, _, rest = shown.removeprefix(_NAMED).partition("\n")
    return NcclFiles(system, None if user is None else rest, path)


def _words(files: NcclFiles) -> str:
    return listed(sorted(files.texts), "no file")


FACT = Fact("nccl_files", (_SYSTEM, _USER), _read, _words, row=840)

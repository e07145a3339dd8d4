"""NCCL's configuration files as they are: /etc/nccl.conf and the login's ~/.nccl.conf."""

from dataclasses import dataclass

from nodectl.common.node_paths import FIND_HOME
from nodectl.facts.base import Fact, file_text, listed, script
from nodectl.model.recording import Command, Recording

_SYSTEM = Command("nccl-conf", ("cat", "/etc/nccl.conf"))
_OF_LOGIN = """\
file=$home/.nccl.conf
[ ! -e "$file" ] && [ ! -L "$file" ] || exec cat "$file"
printf 'cat: %s: No such file or directory\\n' "$file" >&2
exit 1
"""
_USER = script("nccl-conf-user", FIND_HOME + _OF_LOGIN, waits=True)


@dataclass(frozen=True, slots=True)
class NcclFiles:
    """NCCL's files; None where there is none. The user's goes before the system's."""

    system: str | None
    user: str | None


def _read(recording: Recording) -> NcclFiles:
    return NcclFiles(file_text(recording, _SYSTEM.key), file_text(recording, _USER.key))


def _words(files: NcclFiles) -> str:
    texts = {"/etc/nccl.conf": files.system, "~/.nccl.conf": files.user}
    return listed((path for path, text in texts.items() if text is not None), "no file")


FACT = Fact("nccl_files", (_SYSTEM, _USER), _read, _words, row=840)

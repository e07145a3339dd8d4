"""NCCL's configuration files as they are: /etc/nccl.conf and the login's ~/.nccl.conf."""

from dataclasses import dataclass

from nodectl.facts.base import Fact, UnknownError, entry, listed
from nodectl.model.recording import Command, Recording

_SYSTEM = Command("nccl-conf", ("cat", "/etc/nccl.conf"))
# under sudo the login's own is meant, not root's
_OF_LOGIN = (
    'home=$HOME; [ -z "$SUDO_USER" ] || home=$(getent passwd "$SUDO_USER" | cut -d: -f6); cat "$home/.nccl.conf"'
)
_USER = Command("nccl-conf-user", ("sh", "-c", _OF_LOGIN))


@dataclass(frozen=True, slots=True)
class NcclFiles:
    """NCCL's files; None where there is none. The user's goes before the system's."""

    system: str | None
    user: str | None


def _read(recording: Recording) -> NcclFiles:
    return NcclFiles(_file(recording, _SYSTEM.key), _file(recording, _USER.key))


def _file(recording: Recording, key: str) -> str | None:
    done = entry(recording, key)
    if done.exit_status == 0:
        return done.stdout
    if "No such file" in done.stderr:
        return None
    raise UnknownError(f"{key}: {done.stderr.strip()}")


def _words(files: NcclFiles) -> str:
    texts = {"/etc/nccl.conf": files.system, "~/.nccl.conf": files.user}
    return listed((path for path, text in texts.items() if text is not None), "no file")


FACT = Fact("nccl_files", (_SYSTEM, _USER), _read, _words, row=840)

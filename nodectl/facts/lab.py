"""Whether the host is one of a lab, and what it then shares with the machine."""

import json

from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry
from nodectl.model.facts import Lab
from nodectl.model.recording import Command, Recording

_MARK = "/etc/nodectl-lab"


def _read(recording: Recording) -> Lab:
    found = entry(recording, "lab")
    if found.exit_status != 0:
        raise AbsentError("not a lab host")
    try:
        mark = json.loads(found.stdout)
        return Lab(str(mark["lab"]), tuple(str(each) for each in mark["shared"]), str(mark.get("recorded") or ""))
    except (ValueError, KeyError, TypeError) as error:
        raise ParseError(f"{_MARK}: {found.stdout[:80]!r}: {error!r}") from error


FACT = Fact("lab", lambda venv: (Command("lab", ("cat", _MARK)),), _read)

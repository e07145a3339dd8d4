"""Whether the host is one of a lab, and what it then shares with the machine."""

from dataclasses import dataclass

from nodectl.common import bounded_json
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, entry
from nodectl.model.recording import Command, Recording

_MARK = "/etc/nodectl-lab"


@dataclass(frozen=True, slots=True)
class Lab:
    """A host of a lab: what it shares with the machine, so that no value of those is taken for its own.

    `recorded` names the recording that answers for its hardware; empty where it is not dressed in one.
    """

    lab: str
    shared: tuple[str, ...]
    recorded: str = ""


def _read(recording: Recording) -> Lab:
    done = entry(recording, "lab", in_part=True)
    if done.exit_status != 0:
        raise AbsentError("not a lab host")
    try:
        mark = bounded_json.loads(done.stdout)
        return Lab(str(mark["lab"]), tuple(map(str, mark["shared"])), str(mark.get("recorded") or ""))
    except (ValueError, KeyError, TypeError) as error:
        raise ParseError(f"{_MARK}: {done.stdout[:80]!r}: {error!r}") from error


def _words(lab: Lab) -> str:
    recorded = f"; hardware recorded: {lab.recorded}" if lab.recorded else ""
    return f"{lab.lab}; the machine's, shared by all its hosts: {', '.join(lab.shared)}{recorded}"


FACT = Fact("lab", (Command("lab", ("cat", _MARK)),), _read, _words, row=1000, quiet=True)

"""Whether a daemon keeps the clock right."""

from dataclasses import dataclass

from nodectl.facts.base import Fact, UnknownError, entry, script
from nodectl.model.recording import Recording

_SHOW = """\
if command -v chronyc >/dev/null && told=$(chronyc -n tracking 2>/dev/null); then
  printf 'chrony %s\\n' "$(printf '%s' "$told" | sed -n 's/^Leap status *: *//p')"
elif [ -d /run/systemd/system ] && told=$(timedatectl show --property=NTPSynchronized --value 2>/dev/null); then
  printf 'systemd %s\\n' "$told"
else
  exit 3
fi
"""


@dataclass(frozen=True, slots=True)
class ClockSync:
    """Hold whether something keeps the clock right, in the words of the program that was asked."""

    synchronised: bool
    told: str


def _read(recording: Recording) -> ClockSync:
    done = entry(recording, "clock-sync")
    if done.exit_status != 0:
        raise UnknownError("neither chronyc nor timedatectl answers")
    daemon, _, state = done.stdout.strip().partition(" ")
    return ClockSync((daemon, state) in (("chrony", "Normal"), ("systemd", "yes")), f"{daemon}: {state}")


FACT = Fact("clock_sync", (script("clock-sync", _SHOW, waits=True),), _read, lambda sync: sync.told, row=830)

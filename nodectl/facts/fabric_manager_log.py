"""What fabric manager has logged since the boot: in its own file, else in the journal."""

from nodectl.common.counting import counted
from nodectl.facts.base import Fact, output, parse, script
from nodectl.model.recording import Recording
from nodectl.parsers.nvidia.fabricmanager_log import FabricManagerLog, parse_fabricmanager_log

# the file is kept over boots, and its times are local ones, as `uptime -s` has them
_SHOW = r"""
log=/var/log/fabricmanager.log
if [ -e "$log" ]; then
  text=$(tail -n 2000 "$log") || exit 1
  printf '%s\n' "$text" | awk -v since="$(uptime -s 2>/dev/null | tr -dc 0-9)" '
    /^\[/ {
      at = index("JanFebMarAprMayJunJulAugSepOctNovDec", substr($1, 2)) ? 1 : 2
      month = (index("JanFebMarAprMayJunJulAugSepOctNovDec", substr($at, at == 1 ? 2 : 1)) + 2) / 3
      clock = substr($(at + 3), 1, 8); gsub(":", "", clock)
      old = since != "" && sprintf("%04d%02d%02d%s", $(at + 2), month, $(at + 1), clock) < since
    }
    !old' | tail -n 400
  exit 0
fi
command -v journalctl >/dev/null 2>&1 || exit 3
systemctl cat nvidia-fabricmanager.service >/dev/null 2>&1 || exit 3
exec journalctl -b -u nvidia-fabricmanager.service -n 400 -o short-iso --no-pager
"""
_COMMAND = script("fabric-manager-log", _SHOW, hardware=True)


def _read(recording: Recording) -> FabricManagerLog:
    text = output(recording, _COMMAND.key, "fabric manager has no log there")
    # right after a boot there is nothing to read, and nothing to tell
    has_lines = any(line.strip() and not line.startswith("-- ") for line in text.splitlines())
    return parse(parse_fabricmanager_log, text) if has_lines else FabricManagerLog((), None, None, 0)


def _words(log: FabricManagerLog) -> str:
    return f"{counted(len(log.events), 'complaint')} in {counted(log.lines, 'line')}"


FACT = Fact("fabric_manager_log", (_COMMAND,), _read, _words, row=641, quiet=True)

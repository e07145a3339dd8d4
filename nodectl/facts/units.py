"""systemd's units that training depends on, and all that failed."""

from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import Fact, entry, listed, output, parse
from nodectl.model.recording import Command, Recording

NO_SYSTEMD = "no systemd runs there"
# what training depends on, or what comes in its way
UNITS = (
    *("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm", "nvidia-imex", "openibd", "slurmd", "munge"),
    *("chrony", "chronyd", "ntpd", "systemd-timesyncd", "ssh", "sshd", "irqbalance", "tuned", "docker", "containerd"),
    "unattended-upgrades",
)
_SERVICE = ".service"
_PROPERTIES = "Id,LoadState,ActiveState,SubState,UnitFileState,Result"
_SHOW = f"""\
[ -d /run/systemd/system ] || exit 3
printf 'system %s\\n' "$(systemctl is-system-running)"
systemctl list-units --state=failed --plain --no-legend --no-pager | while read -r unit _; do
  printf 'failed %s\\n' "$unit"
done
systemctl show --no-pager --property={_PROPERTIES} -- "$@"
"""
COMMAND = Command(
    "units", ("sh", "-c", _SHOW, "units", *(f"{name}{_SERVICE}" for name in UNITS)), hardware=True, waits=True
)


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit: load, active, sub and enabled state, and how it last ended."""

    name: str
    load: str
    active: str
    sub: str
    enabled: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Units:
    """The units that training depends on, and all that failed; `system` is systemd's word on the whole."""

    system: str
    units: Mapping[str, Unit]
    failed: tuple[str, ...]


def _read(recording: Recording) -> Units:
    units = parse(_parse, output(recording, COMMAND.key, NO_SYSTEMD))
    *_, last = entry(recording, COMMAND.key).argv
    if last.endswith(_SERVICE) and last.removesuffix(_SERVICE) not in units.units:
        raise ParseError(f"units: the output is cut: it lacks {last}, which was asked for last")
    return units


def _parse(text: str) -> Units:
    system, failed, blocks = "", [], []
    block: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        word, _, rest = line.partition(" ")
        name, equals, value = line.partition("=")
        if word == "system":
            system = rest
        elif word == "failed":
            failed.append(rest)
        elif not line.strip():
            blocks.append(block)
            block = {}
        elif equals:
            block[name] = value
        else:
            raise ParseError(f"units: line {number}: {line[:200]!r}")
    printed = [each for each in [*blocks, block] if each]
    needed = {"Id", "LoadState", "ActiveState"}.union(*printed[:-1])
    if not printed or needed - printed[-1].keys():
        raise ParseError("units: the output is cut: its last unit lacks what systemctl was asked for")
    units = [_unit(each) for each in printed]
    return Units(system, {unit.name: unit for unit in units}, tuple(failed))


def _unit(block: dict[str, str]) -> Unit:
    name = block["Id"].removesuffix(_SERVICE)
    words = (block.get(key, "") for key in ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result"))
    return Unit(name, *words)


def _words(units: Units) -> str:
    active = {name for name, unit in units.units.items() if unit.active == "active"}
    return f"{units.system}; failed: {listed(set(units.failed))}; active: {listed(active)}"


FACT = Fact("units", (COMMAND,), _read, _words, row=850)

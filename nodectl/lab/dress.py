"""What lab hosts are dressed in: a recording's answers for the hardware that they have not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from nodectl.common.node_paths import VENV
from nodectl.common.resources import payload_dir
from nodectl.common.system_names import is_network
from nodectl.errors import LabError, ParseError, ProfileError
from nodectl.facts.catalogue import commands_for
from nodectl.lab.nvml import programs, real_nvidia_smi, state_of
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.profiles.resolve import resolve
from nodectl.recordings.folder import RecordedFleet, read_host
from nodectl.recordings.mask import Template

# below a host's root; the collector and the shims look there
RECORDED = "var/lib/nodectl-lab/recorded"
_SHIMS = "usr/local/bin"
# as roles/limits writes it: sessions are the lab's own, and what was recorded was provisioned
_LIMITS = "etc/security/limits.d/90-nodectl.conf"
# programs that read a host's files or run a script: never a tool of the hardware by themselves
_GENERAL = {"sh", "cat", "grep", "readlink", "ls", "head", "python3", "ldconfig", "systemctl"}
# what nodectl may install on a dressed host answers for itself then: path by key
_OWN = {"venv": VENV}
# a folder of data, none that a lab host has itself
_FREE = re.compile("/(data|datasets|lustre|scratch|shared|work)[0-9]*")
# what a host is taken for if the recording does not say
_PROFILES = {"hardware": "unknown", "stack": "cpu", "tuning": "stock"}


@dataclass(frozen=True)
class Garment:
    """One recorded host's hardware, with gaps where its identity stands."""

    recording: str
    host: Recording
    # of the simulated NVML, under NVIDIA's own nvidia-smi
    nvml: str = ""

    @cached_property
    def template(self) -> Template:
        """Its texts, taken apart once for all that wear it."""
        return Template.of(self.texts(), self.host.host)

    def texts(self) -> dict[str, str]:
        """Return what its commands printed, by the name of the file that holds it."""
        entries = self.host.entries.items()
        texts = {f"{key}.out": entry.stdout for key, entry in entries}
        texts |= {f"{key}.err": entry.stderr for key, entry in entries if entry.stderr}
        return texts | ({"nvml": self.nvml} if self.nvml else {})

    def programs(self) -> dict[str, str]:
        """Return argv by key of the programs that an operator would type, too, and that are installed on that host."""
        hardware = {command.key: command.argv for command in hardware_commands()}
        return {
            key: " ".join(hardware[key])
            for key, entry in self.host.entries.items()
            if key in hardware and hardware[key][0] not in _GENERAL and entry.exit_status != 127
            if not (self.nvml and key.startswith("nvidia-smi"))
        }


@dataclass(frozen=True, slots=True)
class Outfit:
    """A garment on one lab host; every host but the `first` to wear it has an identity of its own."""

    garment: Garment
    name: str
    first: bool
    limits: Mapping[str, str] = field(default_factory=dict)
    # (source, target) of file systems of servers: the host has empty ones of those names
    mounts: tuple[tuple[str, str], ...] = ()

    def files(self) -> dict[str, tuple[bytes, int]]:
        """(content, mode) by path below the host's root."""
        garment, programs = self.garment, self.garment.programs()
        texts = garment.texts() if self.first else garment.template.filled(self.name)
        texts["name"] = f"{garment.recording}\n"
        texts["argv"] = "".join(f"{key}\t{argv}\n" for key, argv in programs.items())
        for key, entry in garment.host.entries.items():
            texts[f"{key}.status"] = "cut\n" if entry.exit_status is None else f"{entry.exit_status}\n"
        texts |= {f"{key}.unless": f"{path}\n" for key, path in _OWN.items() if f"{key}.out" in texts}
        files = {}
        if garment.nvml:
            files = real_nvidia_smi(texts.pop("nvml"))
            texts = {name: text for name, text in texts.items() if not name.startswith("nvidia-smi")}
        files |= {f"{RECORDED}/{name}": (text.encode(errors="replace"), 0o644) for name, text in texts.items()}
        lines = [f"{user} - {kind} {value}\n" for kind, value in self.limits.items() for user in ("*", "root")]
        files[_LIMITS] = ("".join(lines).encode(), 0o644)
        shim = (payload_dir() / "lab" / "recorded.sh").read_bytes()
        return files | {f"{_SHIMS}/{argv.split()[0]}": (shim, 0o755) for argv in programs.values()}


@dataclass(frozen=True, slots=True)
class Wardrobe:
    """Each lab host's outfit and profiles, from the recording `name`."""

    name: str
    outfits: Mapping[str, Outfit]
    profiles: Mapping[str, Mapping[str, str]]


def hardware_commands() -> tuple[Command, ...]:
    """Return the commands that only a real machine can answer."""
    return tuple(command for command in commands_for(Host("lab", "lab")) if command.hardware)


def wardrobe_for(fleet: RecordedFleet, names: Sequence[str]) -> Wardrobe:
    """Dress the hosts in the recorded ones in turn; LabError if one cannot be read or holds no hardware."""
    keys = {entry.key for entry in hardware_commands()}
    garments = {host: _garment(fleet, host, folder, keys) for host, folder in fleet.hosts.items()}
    worn = list(garments)
    outfits, profiles = {}, {}
    for number, name in enumerate(names):
        host = worn[number % len(worn)]
        profiles[name] = _PROFILES | fleet.profiles_of(host)
        limits = _limits_of(profiles[name])
        mounts = _mounts_in(fleet.hosts[host])
        outfits[name] = Outfit(garments[host], name, first=number < len(worn), limits=limits, mounts=mounts)
    return Wardrobe(fleet.name, outfits, profiles)


def _limits_of(profiles: Mapping[str, str]) -> dict[str, str]:
    """Return those of the recording's tuning; none where its profiles are not to be had here: `health` says so."""
    try:
        tuning = resolve(profiles["hardware"], profiles["stack"], profiles["tuning"]).tuning
    except ProfileError:
        return {}
    return {kind: setting.value for kind, setting in tuning.limits.items()}


def _mounts_in(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return (source, target) of the network file systems that the recording has mounted; empty if it does not tell."""
    path = folder / "mounts.out"
    rows = [line.split(" ") for line in path.read_text("utf-8", "replace").splitlines()] if path.is_file() else []
    # beside those of a lab host's own folders, and by names that need no quoting
    return tuple(
        (source, target)
        for source, target, kind, *_ in (row for row in rows if len(row) > 3)
        if is_network(kind, source) and ":" in source and _FREE.fullmatch(target)
    )


def _garment(fleet: RecordedFleet, host: str, folder: Path, keys: set[str]) -> Garment:
    try:
        recording = read_host(folder, host, fleet.name, keys)
    except ParseError as error:
        raise LabError(error.message, error.remedy) from error
    if not recording.entries:
        raise LabError(f"{shlex.quote(str(folder))} holds no output of any hardware's tool", "give another recording")
    simulated = fleet.made == "composed" and programs()
    return Garment(fleet.name, recording, state_of(recording) if simulated else "")

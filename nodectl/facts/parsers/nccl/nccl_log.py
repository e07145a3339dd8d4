"""Reads what NCCL logs (`NCCL_DEBUG=VERSION|WARN|INFO`) out of a job's output, of one rank or of all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.facts.parsers.text import Line, foreign, lines_of, unreadable, untagged, whole

TOOL = "nccl-log"
_LINE = re.compile(r"NCCL (?P<level>INFO|WARN|TRACE|VERSION|ABORT)\b ?(?P<message>.*)")
_ORIGIN = re.compile(r"(?P<host>[\w.-]{1,255}):\d{1,10}:\d{1,10} \[-?\d{1,5}\]")
_VERSION = re.compile(r"NCCL version (?P<version>\d{1,4}\.\S{1,60})")
_CHOICE = re.compile(
    r"(?<!\S)(?:(?P<collective>[A-Za-z]{2,30}): +)?(?P<size>\d{1,18}) Bytes -> Algo (?P<algorithm>\w{1,30}) "
    r"proto (?P<protocol>\w{1,20})(?P<end>\s|$)"
)
# NCCL before 2.24 gives their numbers
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
_VIA_OF_CHANNEL = re.compile(
    r"\bvia (?P<transport>NET/[A-Za-z][\w .+-]{0,60}/\d{1,4}[^\s,;]{0,60}"
    r"|[A-Z][A-Za-z0-9]{1,15}(?:/[^\s,;]{1,60}| direct pointer){0,6})"
)
_NET = re.compile(
    r"NET/(?P<net>[A-Za-z][\w .+-]{0,60})/(?P<device>\d{1,4})(?:\(\d{1,6}\))?(?P<rest>(?:/\w{1,20}(?:\(\w{1,20}\))?)*)$"
)
# the plugin of HPC-X lists its devices as NET/IB, and channels name the plugin: IBext_v10, NCCL RDMA Plugin v10
_AS_IB = re.compile(r"IBext\b|IBext_|NCCL RDMA Plugin")
_MADE = re.compile(r"NET/IB ?: Made virtual device \[(?P<number>\d{1,4})\] name=(?P<name>\S{1,200})")
_LISTED = re.compile(r"NET/(?P<net>[\w-]{1,40}) ?: Using (?P<devices>\[\d.*)")
_DEVICE = re.compile(r"\[(?P<number>\d{1,4})\](?P<name>[A-Za-z][\w.@+-]{0,60}):")
_GROUPED = re.compile(r"\[(?P<number>\d{1,4})\]=\{(?P<names>[^}]{1,400})\}")
_MEMBER = re.compile(r"(?:\[\d{1,4}\] ?)?(?P<name>[A-Za-z][\w.-]{0,60}):\d")
_CHANNELS = re.compile(r"(?P<count>\d{1,4}) coll channels")
_GDR_OFF = re.compile(r"GPU Direct RDMA Disabled for (?P<what>(?:GPU|HCA) .{1,160})", re.IGNORECASE)
_SET = re.compile(r"(?P<name>NCCL_[A-Z0-9_]{2,60}) set (?:by environment )?to (?P<value>.{0,200}?)\.?\s*$")
_NO_RDMA = re.compile(
    r"NET/IB ?: No device found|Failed to open libibverbs|libibverbs\.so|NET/IB ?: .{0,60}(?:failed|could not)"
    r"|NCCL_IB_DISABLE set by environment to (?!0\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """The algorithm and protocol that NCCL took for a size."""

    collective: str | None
    size_bytes: int
    algorithm: str
    protocol: str


@dataclass(frozen=True, slots=True)
class NcclWarning:
    """One warning; `host` is None if the line names none."""

    host: str | None
    text: str


@dataclass(frozen=True, slots=True)
class NcclNet:
    """One way over the network that a channel takes: `net` is IB, Socket or a plugin's name."""

    net: str
    device: int
    name: str | None
    gpu_direct: bool


@dataclass(frozen=True, slots=True)
class NcclLog:
    """The log's facts, each once and in the order of first mention; `channels` is None if the log does not tell.

    `transports` and `nets` are the ways that channels take; `no_rdma` says why none of them is InfiniBand or RoCE.
    """

    version: str | None
    algorithms: tuple[NcclChoice, ...]
    warnings: tuple[NcclWarning, ...]
    transports: tuple[str, ...]
    nets: tuple[NcclNet, ...]
    channels: int | None
    environment: Mapping[str, str]
    gpu_direct_off: tuple[str, ...]
    no_rdma: tuple[str, ...]


def parse_nccl_log(text: str) -> NcclLog:
    """Read the output; raise ParseError if no line is NCCL's, or one that names an algorithm is cut."""
    lines = lines_of(text, TOOL)
    log = _Log()
    for line in untagged(lines):
        if "NCCL" in line.text:
            log.read(line)
    if not log.is_ours:
        raise foreign(TOOL, lines, "no line of NCCL's: set NCCL_DEBUG=INFO")
    return log.result()


class _Log:
    """The state of reading."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.choices: dict[NcclChoice, None] = {}
        self.warnings: list[NcclWarning] = []
        self.is_ours = False
        self.transports: dict[str, None] = {}
        self.names: dict[tuple[str, int], str] = {}
        self.channels: int | None = None
        self.environment: dict[str, str] = {}
        self.gdr_off: dict[str, None] = {}
        self.no_rdma: dict[str, None] = {}

    def read(self, line: Line) -> None:
        version = _VERSION.search(line.text)
        if version is not None:
            self.is_ours = True
            self.version = self.version or version["version"]
        match = _LINE.search(line.text)
        if match is None:
            return
        self.is_ours = True
        message = match["message"].strip()
        if match["level"] == "WARN":
            # the last before `NCCL`: a scheduler may have put its own name first
            *_, origin = [None, *_ORIGIN.finditer(line.text[: match.start()])]
            self.warnings.append(NcclWarning(origin["host"] if origin else None, message))
        if "Bytes -> Algo" in message:
            self.choices[_choice(line, message)] = None
        else:
            self._way(message)

    def _way(self, message: str) -> None:
        """Keep what a message says of the ways that data takes."""
        if "via " in message and (via := _VIA_OF_CHANNEL.search(message)):
            self.transports[via["transport"].rstrip(".")] = None
        if "Using [" in message and (listed := _LISTED.search(message)):
            self._devices(listed["net"], listed["devices"])
        if made := _MADE.search(message):
            self.names["IB", int(made["number"])] = made["name"]
        if count := _CHANNELS.search(message):
            self.channels = max(self.channels or 0, int(count["count"]))
        if named := _SET.search(message):
            self.environment[named["name"]] = named["value"]
        if off := _GDR_OFF.search(message):
            self.gdr_off[off["what"].strip()] = None
        if _NO_RDMA.search(message):
            self.no_rdma[message[:200]] = None

    def _devices(self, net: str, text: str) -> None:
        listed = text.split("; OOB")[0]
        for device in _GROUPED.finditer(listed):
            members = [match["name"] for match in _MEMBER.finditer(device["names"])]
            self.names[net, int(device["number"])] = "+".join(members)
        for device in _DEVICE.finditer(_GROUPED.sub("", listed)):
            self.names[net, int(device["number"])] = device["name"]

    def _name(self, net: str, device: int) -> str | None:
        listed = "IB" if _AS_IB.match(net) and (net, device) not in self.names else net
        return self.names.get((listed, device))

    def result(self) -> NcclLog:
        nets: dict[NcclNet, None] = {}
        for transport in self.transports:
            if match := _NET.match(transport):
                net, device = match["net"], int(match["device"])
                # GDRDMA(PCI): past the link between processor and GPU
                direct = any(part.partition("(")[0] == "GDRDMA" for part in match["rest"].split("/"))
                nets[NcclNet(net, device, self._name(net, device), direct)] = None
        return NcclLog(
            version=self.version,
            algorithms=tuple(self.choices),
            warnings=tuple(self.warnings),
            transports=tuple(self.transports),
            nets=tuple(nets),
            channels=self.channels,
            environment=self.environment,
            gpu_direct_off=tuple(self.gdr_off),
            no_rdma=tuple(self.no_rdma),
        )


def _choice(line: Line, message: str) -> NcclChoice:
    match = _CHOICE.search(message)
    if match is None:
        raise unreadable(TOOL, line, "an algorithm's choice that is cut")
    return NcclChoice(
        collective=match["collective"],
        size_bytes=int(match["size"]),
        algorithm=_named(line, match["algorithm"], _ALGORITHMS),
        protocol=_named(line, match["protocol"], _PROTOCOLS),
    )


def _named(line: Line, word: str, names: tuple[str, ...]) -> str:
    number = whole(word)
    if number is None:
        return word
    if number >= len(names):
        raise unreadable(TOOL, line, f"no name is known for number {word}")
    return names[number]

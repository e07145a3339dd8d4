"""Reads what NCCL logs (`NCCL_DEBUG=VERSION|WARN|INFO`) out of a job's output, of one rank or of all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
    ours = [line for line in untagged(lines) if "NCCL" in line.text]
    versions = [match["version"] for line in ours if (match := _VERSION.search(line.text))]
    said = [(line, match, match["message"].strip()) for line in ours if (match := _LINE.search(line.text))]
    if not (versions or said):
        raise foreign(TOOL, lines, "no line of NCCL's: set NCCL_DEBUG=INFO")
    # of the ways that data takes
    ways = [message for _, _, message in said if "Bytes -> Algo" not in message]
    found = (_VIA_OF_CHANNEL.search(message) for message in ways if "via " in message)
    transports = dict.fromkeys(via["transport"].rstrip(".") for via in found if via)
    return NcclLog(
        version=next(iter(versions), None),
        algorithms=tuple(dict.fromkeys(_choice(line, text) for line, _, text in said if "Bytes -> Algo" in text)),
        warnings=tuple(
            # a scheduler may have put its own name first
            NcclWarning(next(reversed(_ORIGIN.findall(line.text[: match.start()])), None), message)
            for line, match, message in said
            if match["level"] == "WARN"
        ),
        transports=tuple(transports),
        nets=_nets(transports, _names(ways)),
        channels=max((int(count["count"]) for text in ways if (count := _CHANNELS.search(text))), default=None),
        environment={named["name"]: named["value"] for text in ways if (named := _SET.search(text))},
        gpu_direct_off=tuple(dict.fromkeys(off["what"].strip() for text in ways if (off := _GDR_OFF.search(text)))),
        no_rdma=tuple(dict.fromkeys(text[:200] for text in ways if _NO_RDMA.search(text))),
    )


def _names(messages: Iterable[str]) -> dict[tuple[str, int], str]:
    names: dict[tuple[str, int], str] = {}
    for message in messages:
        if "Using [" in message and (match := _LISTED.search(message)):
            net, listed = match["net"], match["devices"].split("; OOB")[0]
            for device in _GROUPED.finditer(listed):
                members = [member["name"] for member in _MEMBER.finditer(device["names"])]
                names[net, int(device["number"])] = "+".join(members)
            for device in _DEVICE.finditer(_GROUPED.sub("", listed)):
                names[net, int(device["number"])] = device["name"]
        if made := _MADE.search(message):
            names["IB", int(made["number"])] = made["name"]
    return names


def _nets(transports: Iterable[str], names: Mapping[tuple[str, int], str]) -> tuple[NcclNet, ...]:
    nets: dict[NcclNet, None] = {}
    for match in filter(None, map(_NET.match, transports)):
        net, device = match["net"], int(match["device"])
        # GDRDMA(PCI): past the link between processor and GPU
        direct = any(part.partition("(")[0] == "GDRDMA" for part in match["rest"].split("/"))
        listed = "IB" if _AS_IB.match(net) and (net, device) not in names else net
        nets[NcclNet(net, device, names.get((listed, device)), direct)] = None
    return tuple(nets)


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

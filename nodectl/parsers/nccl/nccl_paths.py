"""Reads which way NCCL's data goes out of its log: transports and devices of its channels, and why not another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.parsers.text import lines_of, untagged

TOOL = "nccl-log"
_SAID = re.compile(r"NCCL (?:INFO|WARN)\b ?(?P<said>.*)")
_VIA = re.compile(
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
_NVLS = re.compile(r"(?P<count>\d{1,4}) nvls channels")
_GDR_OFF = re.compile(r"GPU Direct RDMA Disabled for (?P<what>(?:GPU|HCA) .{1,160})", re.IGNORECASE)
_SET = re.compile(r"(?P<name>NCCL_[A-Z0-9_]{2,60}) set (?:by environment )?to (?P<value>.{0,200}?)\.?\s*$")
_NO_RDMA = re.compile(
    r"NET/IB ?: No device found|Failed to open libibverbs|libibverbs\.so|NET/IB ?: .{0,60}(?:failed|could not)"
    r"|NCCL_IB_DISABLE set by environment to (?!0\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class NcclNet:
    """One way over the network that a channel takes: `net` is IB, Socket or a plugin's name."""

    net: str
    device: int
    name: str | None
    gpu_direct: bool


@dataclass(frozen=True, slots=True)
class NcclPaths:
    """What the channels use, each once and in the order of first mention; None where the log does not tell."""

    transports: tuple[str, ...]
    nets: tuple[NcclNet, ...]
    channels: int | None
    nvls_channels: int | None
    environment: Mapping[str, str]
    gpu_direct_off: tuple[str, ...]
    no_rdma: tuple[str, ...]


def parse_nccl_paths(text: str) -> NcclPaths:
    """The same text as for parse_nccl_log, which judges whether it is a log; here what is not told is left out."""
    paths = _Paths()
    for line in untagged(lines_of(text, TOOL)):
        said = _SAID.search(line.text)
        if said is not None:
            paths.read(said["said"].strip())
    return paths.result()


class _Paths:
    """What was read so far."""

    def __init__(self) -> None:
        self.transports: dict[str, None] = {}
        self.names: dict[tuple[str, int], str] = {}
        self.channels: int | None = None
        self.nvls: int | None = None
        self.environment: dict[str, str] = {}
        self.gdr_off: dict[str, None] = {}
        self.no_rdma: dict[str, None] = {}

    def read(self, said: str) -> None:
        if "via " in said and (via := _VIA.search(said)):
            self.transports[via["transport"].rstrip(".")] = None
        if "Using [" in said and (listed := _LISTED.search(said)):
            self._devices(listed["net"], listed["devices"])
        if made := _MADE.search(said):
            self.names["IB", int(made["number"])] = made["name"]
        if count := _CHANNELS.search(said):
            self.channels = max(self.channels or 0, int(count["count"]))
        if count := _NVLS.search(said):
            self.nvls = max(self.nvls or 0, int(count["count"]))
        if named := _SET.search(said):
            self.environment[named["name"]] = named["value"]
        if off := _GDR_OFF.search(said):
            self.gdr_off[off["what"].strip()] = None
        if _NO_RDMA.search(said):
            self.no_rdma[said[:200]] = None

    def _devices(self, net: str, text: str) -> None:
        listed = text.split("; OOB")[0]
        for found in _GROUPED.finditer(listed):
            members = [each["name"] for each in _MEMBER.finditer(found["names"])]
            self.names[net, int(found["number"])] = "+".join(members)
        for found in _DEVICE.finditer(_GROUPED.sub("", listed)):
            self.names[net, int(found["number"])] = found["name"]

    def _name(self, net: str, device: int) -> str | None:
        listed = "IB" if _AS_IB.match(net) and (net, device) not in self.names else net
        return self.names.get((listed, device))

    def result(self) -> NcclPaths:
        nets: dict[NcclNet, None] = {}
        for transport in self.transports:
            if match := _NET.match(transport):
                net, device = match["net"], int(match["device"])
                # GDRDMA(PCI): past the link between processor and GPU
                direct = any(part.partition("(")[0] == "GDRDMA" for part in match["rest"].split("/"))
                nets[NcclNet(net, device, self._name(net, device), direct)] = None
        return NcclPaths(
            transports=tuple(self.transports),
            nets=tuple(nets),
            channels=self.channels,
            nvls_channels=self.nvls,
            environment=self.environment,
            gpu_direct_off=tuple(self.gdr_off),
            no_rdma=tuple(self.no_rdma),
        )

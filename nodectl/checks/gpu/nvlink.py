"""Checks how a node's GPUs reach each other: NVLink, peer access, the topology matrix by the profile's link class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodectl.checks.check import Check, Subject, Threshold, Told, failed_unless, judges, judges_value
from nodectl.common.counting import counted
from nodectl.facts.gpus import Gpus
from nodectl.facts.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink, NvLink, NvLinkGpu
from nodectl.facts.parsers.nvidia.smi_topo import NvidiaSmiP2p, NvidiaSmiTopo
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.gpus import model_of

ORDER = 100

_RESET = (
    "reset all GPUs of the node together (fabric manager stopped), or reboot; if it comes back, look at the baseboard"
)
# nvidia-smi counts what the link mended and what it could not alike
_COUNTERS = ("replay_errors", "recovery_errors", "crc_errors")


def _link(host: Subject) -> str | None:
    return host.wanted.hardware.link if host.wanted else None


def _is_whole(host: Subject) -> bool:
    return _link(host) == "nvswitch"


def _is_linked(host: Subject) -> bool:
    return _link(host) in ("nvswitch", "nvlink-bridge")


def _has_linked_peers(host: Subject) -> bool:
    return _is_linked(host) and (host.gpus is None or host.gpus > 1)


NVLINK_ERRORS_LIMIT = Threshold("nvlink_errors", 1, "between two readings; any at all is worth a look")
NVLINK_ERRORS_FIRST_LIMIT = Threshold(
    "nvlink_errors_first", 5, "imbue warns from five on, counted since the driver was loaded"
)
NVLINK_ACTIVE = Check(
    "nvlink_active",
    fires="an inactive link: any on NVSwitch, else more than its siblings'",
    expected="all active",
    remedy=_RESET,
)
NVLINK_COUNT = Check(
    "nvlink_count",
    fires="fewer active links than the other GPUs of its kind, or than the module has; warning: the same with `auto`",
    expected="as many on each, and on a module all",
    remedy=_RESET,
)
NVLINK_SPEED = Check(
    "nvlink_speed",
    fires="a link slower than the others of its kind of GPU",
    expected="one rate a kind of GPU",
    remedy=_RESET,
)
NVLINK_ERRORS = Check(
    "nvlink_errors",
    fires="recovery errors since the last reading, or clearly many; warning: replay or CRC errors alone",
    expected="no errors",
    remedy=_RESET,
    thresholds=(NVLINK_ERRORS_LIMIT, NVLINK_ERRORS_FIRST_LIMIT),
)


@judges(NVLINK_ACTIVE, NVLINK_COUNT, NVLINK_SPEED, NVLINK_ERRORS, reads=("nvlink", "gpus"))
def links(host: Subject) -> Iterator[Finding]:
    """Require all links to be active, of equal number and speed on each GPU, and without transmission errors."""
    nvlink, wanted = host.facts.get("nvlink"), _is_linked(host)
    gpus = host.fact("gpus", Gpus)
    if wanted:  # without NVLink in the profile an unread report does not matter
        # nvidia-smi stops at a lost GPU
        promised = _has_linked_peers(host) and not (gpus and gpus.lost)
        yield from host.unread(NVLINK_ACTIVE, nvlink, "active links", promised=promised)
    if not isinstance(nvlink, NvidiaSmiNvlink):
        return
    nvlink, cut = _whole(nvlink)
    listed = {gpu.index for gpu in nvlink.gpus}
    names = {gpu.name for gpu in nvlink.gpus if gpu.links}
    devices = gpus.devices if gpus else ()
    absent = [gpu.label for gpu in devices if gpu.index not in listed and (gpu.name in names or gpu.name is None)]
    if wanted or any(gpu.links and not _is_bridged(gpu) for gpu in nvlink.gpus):
        remedy = "run `nvidia-smi nvlink -s` there once more"
        if cut:
            yield host.finding(NVLINK_ACTIVE, Status.UNKNOWN, actual=cut, remedy=remedy)
        for subject in absent:
            actual = "nvidia-smi does not list its links"
            yield host.finding(NVLINK_ACTIVE, Status.UNKNOWN, subject, actual=actual, remedy=remedy)
    yield from (_without_links(host, gpu, nvlink.gpus) for gpu in nvlink.gpus if gpu.links is None)
    linked = [gpu for gpu in nvlink.gpus if gpu.links]
    if not linked and not wanted:
        if len(nvlink.gpus) > 1 and _built(nvlink.gpus):
            yield from _counted(host, nvlink)
        return
    actual = f"{counted(sum(map(_active, linked)), 'link')} of {counted(len(linked), 'GPU')}"
    yield from host.all_of(NVLINK_ACTIVE, _inactive(host, linked), actual=actual)
    yield from _counted(host, nvlink)
    yield from host.all_of(NVLINK_SPEED, _slow(host, linked), actual=_rates(linked))
    yield from host.all_of(NVLINK_ERRORS, _errors(host, linked), actual="no link counts more errors than that")


def _whole(nvlink: NvidiaSmiNvlink) -> tuple[NvidiaSmiNvlink, str]:
    """Return the report without a last part that lists fewer links than such a GPU has, and how it is cut, or ""."""
    *others, last = nvlink.gpus or (None,)
    if not last or not last.links:
        return nvlink, ""
    most = max((len(gpu.links or ()) for gpu in others if gpu and gpu.name == last.name), default=_built([last]))
    if len(last.links) >= most:
        return nvlink, ""
    actual = f"the report ends in GPU {last.index}, with {len(last.links)} of {most} links"
    return replace(nvlink, gpus=nvlink.gpus[:-1]), actual


def _without_links(host: Subject, gpu: NvLinkGpu, gpus: Sequence[NvLinkGpu]) -> Finding:
    remedy = "run `nvidia-smi nvlink -s` there"
    actual = gpu.message or "nothing is told of its links"
    status = Status.SKIPPED if "MIG" in actual else Status.UNKNOWN
    if _is_idle(gpu):
        joined = [other for other in gpus if other.name == gpu.name and _active(other)]
        if _is_linked(host) or (joined and not _is_bridged(gpu)):
            return _finding(host, NVLINK_ACTIVE, gpu, Status.FAILED, "inactive: all links", "reset GPU")
        status = Status.SKIPPED
    return host.finding(
        NVLINK_ACTIVE, status, f"GPU {gpu.index}", expected="active links", actual=actual, remedy=remedy
    )


def _inactive(host: Subject, gpus: list[NvLinkGpu]) -> Iterator[Finding]:
    """Yield the inactive links: with NVSwitch all must be active, else as many as on the others of the kind."""
    few = _few(host, gpus)
    for gpu in gpus:
        off = [link.link for link in gpu.links or () if link.active is False]
        untold = [link.link for link in gpu.links or () if link.active is None]
        if untold:
            yield _finding(host, NVLINK_ACTIVE, gpu, Status.UNKNOWN, f"no state of links {_names(untold)}")
        if off and _link(host) != "pcie" and (_is_whole(host) or gpu in few):
            yield _finding(host, NVLINK_ACTIVE, gpu, Status.FAILED, f"inactive: {_names(off)}", "reset GPU")


def _few(host: Subject, gpus: Sequence[NvLinkGpu]) -> list[NvLinkGpu]:
    """Return the GPUs with fewer active links than the others of their kind, if no bridge decides it."""
    most: dict[str | None, int] = {}
    for gpu in gpus:
        most[gpu.name] = max(_active(gpu), most.get(gpu.name, 0))
    return [
        gpu
        for gpu in gpus
        if gpu.links is not None and (_is_linked(host) or not _is_bridged(gpu))
        if _active(gpu) < most[gpu.name] or (_is_linked(host) and not most[gpu.name])
    ]


def _is_bridged(gpu: NvLinkGpu) -> bool:
    """Tell whether a bridge, or the carrier board of an SXM2 module, decides which links of the GPU are joined."""
    model = model_of(gpu.name or "")
    return "SXM2" in (gpu.name or "") or bool(model and model.bridge)


def _is_idle(gpu: NvLinkGpu) -> bool:
    """Tell whether one text stands for all links of a GPU that uses none of them."""
    return gpu.links is None and "inactive" in (gpu.message or "").lower()


def _active(gpu: NvLinkGpu) -> int:
    return sum(1 for link in gpu.links or () if link.active)


def _counted(host: Subject, nvlink: NvidiaSmiNvlink) -> Iterator[Finding]:
    counts = {gpu.index: _active(gpu) for gpu in nvlink.gpus if gpu.links is not None or _is_idle(gpu)}
    if _link(host) == "pcie" or not nvlink.gpus:
        return
    if not counts:
        actual, remedy = "no GPU tells of its links", "run `nvidia-smi nvlink -s` there"
        status = Status.UNKNOWN if _is_linked(host) else Status.SKIPPED
        yield host.finding(NVLINK_COUNT, status, actual=actual, remedy=remedy)
        return
    most, built = max(counts.values()), _built(nvlink.gpus)
    few = [gpu.index for gpu in _few(host, nvlink.gpus)]
    actual = ", ".join(f"GPU {i}: {counts[i]}" for i in few) + f"; the others {most}" if few else f"{most} each"
    status = failed_unless(not few and (most > 0 or not _is_linked(host)))
    if not few and most < built and (most or len(nvlink.gpus) > 1):
        status, actual = Status.FAILED if host.gpus else Status.WARNING, f"{most} of {built} each"
    yield host.finding(NVLINK_COUNT, status, actual=actual)


def _built(gpus: Sequence[NvLinkGpu]) -> int:
    """Return the links of the GPUs' kind; 0 for several kinds, and where a bridge or a carrier board decides."""
    model = model_of(gpus[0].name or "") if len({gpu.name for gpu in gpus}) == 1 else None
    return model.nvlink[1] if model and model.nvlink and not _is_bridged(gpus[0]) else 0


def _slow(host: Subject, gpus: list[NvLinkGpu]) -> Iterator[Finding]:
    rates = [(gpu.name, link.speed_gb_s) for gpu in gpus for link in gpu.links or () if link.active and link.speed_gb_s]
    for gpu in gpus:
        best = max((rate for name, rate in rates if name == gpu.name), default=0)
        if any(link.active and link.speed_gb_s is None for link in gpu.links or ()):
            yield _finding(host, NVLINK_SPEED, gpu, Status.UNKNOWN, "the rate of an active link is not told")
        slow = [link for link in gpu.links or () if link.active and link.speed_gb_s and link.speed_gb_s < best]
        if slow:
            actual = ", ".join(f"link {link.link} {link.speed_gb_s:g}" for link in slow) + f" of {best:g} GB/s"
            yield _finding(host, NVLINK_SPEED, gpu, Status.FAILED, actual, "reset GPU")


def _rates(gpus: list[NvLinkGpu]) -> str:
    rates = {link.speed_gb_s for gpu in gpus for link in gpu.links or () if link.active and link.speed_gb_s}
    return ", ".join(f"{rate:g} GB/s" for rate in sorted(rates)) or "no rate is told"


def _errors(host: Subject, gpus: list[NvLinkGpu]) -> Iterator[Finding]:
    for gpu in gpus:
        if all(getattr(link, name) is None for link in gpu.links or () for name in _COUNTERS):
            yield _finding(host, NVLINK_ERRORS, gpu, Status.UNKNOWN, "no counter is told (`nvidia-smi nvlink -e`)")
        texts = [text for link in gpu.links or () if (text := _grown(host, gpu, link))]
        if texts:
            # the hardware resends after a bad checksum; a link that recovers is trained again, and transfers wait
            failed = any(" recovery: " in text for text in texts)
            status, action = (Status.FAILED, "reset GPU") if failed else (Status.WARNING, "none")
            yield _finding(host, NVLINK_ERRORS, gpu, status, "; ".join(texts[:4]), action)


def _grown(host: Subject, gpu: NvLinkGpu, link: NvLink) -> str:
    texts, prefix = [], f"nvlink.{gpu.uuid or gpu.index}.{link.link}."
    for name in _COUNTERS:
        value = getattr(link, name)
        if value is None:
            continue
        grown = host.growth(prefix + name, value)
        if host.limit_reached(grown, NVLINK_ERRORS_LIMIT, NVLINK_ERRORS_FIRST_LIMIT) is not None:
            texts.append(f"link {link.link} {name.removesuffix('_errors')}: {grown.text}")
    return ", ".join(texts)


def _names(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _finding(host: Subject, check: Check, gpu: NvLinkGpu, status: Status, actual: str, action: str = "none") -> Finding:
    evidence = f"UUID {gpu.uuid}" if gpu.uuid else ""
    return host.finding(check, status, f"GPU {gpu.index}", actual=actual, action=action, evidence=evidence)


P2P = Check(
    "p2p",
    fires="no peer access between GPUs that NVLink joins",
    expected="OK between GPUs",
    remedy="look for MIG, an IOMMU or access control that is on, and at the fabric manager; then reset the GPUs",
)


@judges_value(NvidiaSmiP2p, P2P, reads=("p2p",), or_absent=True, where=_has_linked_peers, otherwise=Status.FAILED)
def peers(host: Subject, p2p: NvidiaSmiP2p) -> Told:
    """Require peer access to memory between GPUs that NVLink joins."""
    pairs = {(a, b): word for a, row in p2p.status.items() for b, word in row.items()}
    without = {pair: word for pair, word in pairs.items() if word != "OK"}
    # a bridge joins pairs only: there is a fault if no pair has access at all
    good = not without if _is_whole(host) else "OK" in pairs.values()
    actual = ", ".join(f"{number} x {word}" for word, number in Counter(without.values()).most_common())
    return Told(good, f"{actual}, first {'-'.join(next(iter(without)))}" if without else "OK")


GPU_TOPOLOGY = Check(
    "gpu_topology",
    fires="a pair of GPUs without the profile's NVLink, or with less of it",
    remedy="look at `nvidia-smi nvlink -s` and the fabric manager; a pair without NVLink slows every ring",
)


@judges_value(
    NvidiaSmiTopo,
    GPU_TOPOLOGY,
    reads=("gpu_topology",),
    unread="NVLink between GPUs",
    or_absent=True,
    where=_has_linked_peers,
    otherwise=Status.FAILED,
)
def matrix(host: Subject, topology: NvidiaSmiTopo) -> Told:
    """Require the profile's link class between GPUs and, with NVSwitch, the same number of lanes between all."""
    expected = "NVLink between all GPUs" if _is_whole(host) else "each GPU has one that it reaches by NVLink"
    rows = {
        gpu: {other: word for other, word in topology.links.get(gpu, {}).items() if other in topology.gpus}
        for gpu in topology.gpus
    }
    link_counts = Counter(word for row in rows.values() for word in row.values())
    classes = ", ".join(f"{many // 2} x {word}" for word, many in link_counts.most_common()) or "no pair"
    if _is_whole(host):
        good = bool(link_counts) and all(word.startswith("NV") for word in link_counts) and len(link_counts) == 1
    else:
        good = bool(rows) and all(any(word.startswith("NV") for word in row.values()) for row in rows.values())
    return Told(good, classes, expected)

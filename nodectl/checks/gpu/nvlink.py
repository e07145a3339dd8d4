"""How GPUs of a node reach one another: NVLink, peer access and the matrix, against the profile's link class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, warning_unless
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink, NvLink, NvLinkGpu
from nodectl.parsers.nvidia.smi_topo import NvidiaSmiP2p, NvidiaSmiTopo

ORDER = 100

_LINKED = ("nvswitch", "nvlink-bridge")
_RESET = "reset all GPUs of the node together (fabric manager stopped), or reboot; comes it back, look at the baseboard"
# nvidia-smi counts what the link mended and what it could not alike
_COUNTERS = ("replay_errors", "recovery_errors", "crc_errors")


def _link(host: Subject) -> str | None:
    return host.wanted.hardware.link if host.wanted else None


def _is_whole(host: Subject) -> bool:
    """Every GPU reaches every other by NVLink."""
    return _link(host) == "nvswitch"


def _single(host: Subject) -> bool:
    count = host.wanted.hardware.gpus if host.wanted else None
    return count is not None and count < 2


NVLINK_ERRORS_LIMIT = Threshold("nvlink_errors", 1, "between two readings; any at all is worth a look")
NVLINK_ERRORS_FIRST_LIMIT = Threshold(
    "nvlink_errors_first", 5, "imbue warns from five on, counted since the driver was loaded"
)
NVLINK_ACTIVE = Check(
    "nvlink_active",
    looks_at="nvidia-smi nvlink -s",
    fires="an inactive link: any on NVSwitch, else more than its siblings'",
)
NVLINK_COUNT = Check(
    "nvlink_count",
    looks_at="nvidia-smi nvlink -s",
    fires="fewer active links than the other GPUs",
    expected="as many on each",
)
NVLINK_SPEED = Check("nvlink_speed", looks_at="nvidia-smi nvlink -s", fires="a link slower than the others")
NVLINK_ERRORS = Check(
    "nvlink_errors",
    looks_at="nvidia-smi nvlink -e",
    fires="warning: errors since the last reading, or clearly many",
    thresholds=(NVLINK_ERRORS_LIMIT, NVLINK_ERRORS_FIRST_LIMIT),
)


@judges(NVLINK_ACTIVE, NVLINK_COUNT, NVLINK_SPEED, NVLINK_ERRORS, reads=("nvlink",))
def links(host: Subject) -> Iterator[Finding]:
    """All links active, as many and as fast on each GPU, and no errors of the wire."""
    found = host.facts.get("nvlink")
    wanted = _link(host) in _LINKED
    if wanted:
        yield from host.unread(NVLINK_ACTIVE, found, "active links")
    elif isinstance(found, Unread):
        # no NVLink wanted: what cannot be told matters to nobody
        return
    if not isinstance(found, NvidiaSmiNvlink):
        return
    yield from _told(host, found)
    gpus = [gpu for gpu in found.gpus if gpu.links]
    if not gpus and not wanted:
        return
    yield from host.all_of(NVLINK_ACTIVE, _inactive(host, gpus), expected="all active", actual=_in_all(gpus))
    yield from _counted(host, found, gpus)
    yield from host.all_of(NVLINK_SPEED, _slow(host, gpus), expected="one rate", actual=_rates(gpus))
    yield from host.all_of(NVLINK_ERRORS, _errors(host, gpus), expected="no errors", actual="few or none")


def _told(host: Subject, found: NvidiaSmiNvlink) -> Iterator[Finding]:
    for gpu in found.gpus:
        if gpu.links is None:
            remedy = "run `nvidia-smi nvlink -s` there"
            actual = gpu.message or "nothing is told of its links"
            # one text stands for all links of a GPU that has some, and none in use
            off = "inactive" in actual.lower()
            status = Status.SKIPPED if "MIG" in actual else Status.UNKNOWN
            if off:
                status = Status.FAILED if _link(host) in _LINKED else Status.SKIPPED
            yield host.finding(
                NVLINK_ACTIVE, status, f"GPU {gpu.index}", expected="active links", actual=actual, remedy=remedy
            )


def _in_all(gpus: list[NvLinkGpu]) -> str:
    active = sum(1 for gpu in gpus for link in gpu.links or () if link.active)
    return f"{active} links of {len(gpus)} GPUs"


def _inactive(host: Subject, gpus: list[NvLinkGpu]) -> Iterator[Finding]:
    """On NVSwitch every link is in use; bridges use as many as most of the GPUs do."""
    most = Counter(_active(gpu) for gpu in gpus).most_common(1)
    for gpu in gpus:
        off = [link.link for link in gpu.links or () if link.active is False]
        blind = [link.link for link in gpu.links or () if link.active is None]
        if blind:
            yield _finding(host, NVLINK_ACTIVE, gpu, Status.UNKNOWN, f"no state of links {_names(blind)}")
        if not off or _link(host) == "pcie":
            continue
        if _is_whole(host) or _active(gpu) < most[0][0]:
            actual = f"inactive: {_names(off)}"
            yield _finding(host, NVLINK_ACTIVE, gpu, Status.FAILED, actual, "reset GPU")


def _active(gpu: NvLinkGpu) -> int:
    return sum(1 for link in gpu.links or () if link.active)


def _counted(host: Subject, found: NvidiaSmiNvlink, gpus: list[NvLinkGpu]) -> Iterator[Finding]:
    """As many active links on every GPU; each GPU has some where the profile wants NVLink."""
    counts = {gpu.index: _active(gpu) for gpu in found.gpus if gpu.links is not None}
    if _link(host) == "pcie" or not found.gpus:
        return
    if not counts:
        actual, remedy = "no GPU tells of its links", "run `nvidia-smi nvlink -s` there"
        status = Status.UNKNOWN if _link(host) in _LINKED else Status.SKIPPED
        yield host.finding(NVLINK_COUNT, status, actual=actual, remedy=remedy)
        return
    most = max(counts.values())
    few = [index for index, count in counts.items() if count < most or (count == 0 and _link(host) in _LINKED)]
    actual = f"{most} each" if not few else ", ".join(f"GPU {i}: {counts[i]}" for i in few) + f"; the others {most}"
    yield host.finding(NVLINK_COUNT, failed_unless(not few), actual=actual, remedy=_RESET)


def _slow(host: Subject, gpus: list[NvLinkGpu]) -> Iterator[Finding]:
    rates = Counter(link.speed_gb_s for gpu in gpus for link in gpu.links or () if link.active and link.speed_gb_s)
    best = max(rates, default=0)
    for gpu in gpus:
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
        told = [_grown(host, gpu, link) for link in gpu.links or ()]
        many = [text for text in told if text]
        if many:
            yield _finding(host, NVLINK_ERRORS, gpu, Status.WARNING, "; ".join(many[:4]))


def _grown(host: Subject, gpu: NvLinkGpu, link: NvLink) -> str:
    """By change between readings; without an earlier one, only clearly many."""
    texts = []
    for name in _COUNTERS:
        value = getattr(link, name)
        if value is None:
            continue
        grown = host.growth(f"nvlink.{gpu.uuid or gpu.index}.{link.link}.{name}", value)
        first = grown.by is None
        limit = host.threshold(NVLINK_ERRORS_FIRST_LIMIT if first else NVLINK_ERRORS_LIMIT)
        if (value if grown.by is None else grown.by) >= limit:
            texts.append(f"link {link.link} {name.removesuffix('_errors')}: {grown.text}")
    return ", ".join(texts)


def _names(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _finding(host: Subject, check: Check, gpu: NvLinkGpu, status: Status, actual: str, action: str = "none") -> Finding:
    expected = {NVLINK_ACTIVE: "all active", NVLINK_SPEED: "one rate"}.get(check, "no errors")
    return host.finding(
        check,
        status,
        f"GPU {gpu.index}",
        expected=expected,
        actual=actual,
        remedy=_RESET,
        action=action,
        evidence=f"UUID {gpu.uuid}" if gpu.uuid else "",
    )


P2P = Check(
    "p2p",
    looks_at="nvidia-smi topo -p2p r",
    fires="no peer access between GPUs that NVLink joins",
    expected="OK between GPUs",
    remedy="look for MIG, an IOMMU or access control that is on, and at the fabric manager; then reset the GPUs",
)


@judges(P2P, reads=("p2p",))
def peers(host: Subject) -> Iterator[Finding]:
    """Every pair may reach the other's memory where NVLink joins them."""
    found = host.facts.get("p2p")
    if _single(host) or _link(host) not in _LINKED:
        return
    yield from host.unread(P2P, found, "OK between GPUs")
    if not isinstance(found, NvidiaSmiP2p):
        return
    bad = Counter(word for row in found.status.values() for word in row.values() if word != "OK")
    pairs = [(a, b) for a, row in found.status.items() for b, word in row.items() if word != "OK"]
    # a bridge joins pairs only: there is a fault where no pair has access at all
    whole = _is_whole(host)
    good = not bad if whole else any(word == "OK" for row in found.status.values() for word in row.values())
    actual = ", ".join(f"{many} x {word}" for word, many in bad.most_common())
    if pairs:
        actual += f", first {pairs[0][0]}-{pairs[0][1]}"
    yield host.finding(P2P, failed_unless(good), actual=actual or "OK")


GPU_TOPOLOGY = Check(
    "gpu_topology",
    looks_at="nvidia-smi topo -m",
    fires="a pair of GPUs without the profile's NVLink, or with less of it",
    remedy="look at `nvidia-smi nvlink -s` and the fabric manager; a pair without NVLink slows every ring",
)


@judges(GPU_TOPOLOGY, reads=("gpu_topology",))
def matrix(host: Subject) -> Iterator[Finding]:
    """Between GPUs the link class of the profile, and the same number of lanes everywhere on NVSwitch."""
    found = host.facts.get("gpu_topology")
    if _single(host) or _link(host) not in _LINKED:
        return
    yield from host.unread(GPU_TOPOLOGY, found, "NVLink between GPUs")
    if not isinstance(found, NvidiaSmiTopo):
        return
    expected = "NVLink between all GPUs" if _is_whole(host) else "each GPU has one that it reaches by NVLink"
    rows = {
        gpu: {other: word for other, word in found.links.get(gpu, {}).items() if other in found.gpus}
        for gpu in found.gpus
    }
    words = Counter(word for row in rows.values() for word in row.values())
    classes = ", ".join(f"{many // 2} x {word}" for word, many in words.most_common()) or "no pair"
    if _is_whole(host):
        good = bool(words) and all(word.startswith("NV") for word in words) and len(words) == 1
    else:
        good = bool(rows) and all(any(word.startswith("NV") for word in row.values()) for row in rows.values())
    yield host.finding(GPU_TOPOLOGY, failed_unless(good), expected=expected, actual=classes)


GPU_AFFINITY = Check(
    "gpu_affinity",
    looks_at="nvidia-smi topo -m",
    fires="warning: a GPU without a NUMA node, where others have one",
    expected="a NUMA node",
    remedy="look at the firmware's NUMA settings; in a virtual machine, at its topology",
)


@judges(GPU_AFFINITY, reads=("gpu_topology",))
def affinity(host: Subject) -> Iterator[Finding]:
    """GPUs that lie on no NUMA node of a machine with several cannot be bound near their processors."""
    topology = host.facts.get("gpu_topology")
    if host.wanted is None or host.wanted.hardware.gpus != 0:
        yield from host.unknown(topology, "a NUMA node", GPU_AFFINITY)
    found = host.fact("gpu_topology", NvidiaSmiTopo)
    if found is None or len(found.gpus) < 2:
        return
    told = {gpu: found.numa_affinity.get(gpu) for gpu in found.gpus}
    if not any(told.values()) or len(set(told.values())) < 2:
        return
    lost = [gpu for gpu, node in told.items() if not node]
    actual = f"none of {', '.join(lost)}" if lost else "of every GPU"
    yield host.finding(GPU_AFFINITY, warning_unless(not lost), actual=actual)

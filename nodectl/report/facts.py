"""Facts as a table, a line for each subject and the hosts that agree on it, and as JSON."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass

from nodectl.model.facts import Clock, Cpu, Disk, Gpus, Kernel, Lab, Memory, Nic, Unread, Versions

# below this the offset that a round trip can show is its own delay
_CLOCK_CLOSE_S = 0.1

Fold = Callable[[Sequence[str]], str]


def as_document(value: object) -> object:
    """A subject for JSON; one without values says `absent` or `unknown` with the reason."""
    if isinstance(value, Unread):
        return {value.kind: value.reason}
    if isinstance(value, dict):
        return {name: as_document(each) for name, each in value.items()}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def facts_table(facts: Mapping[str, Mapping[str, object]], fold: Fold) -> str:
    """`subject  hosts  what they are`, subjects in the order of the first host, largest group of hosts first."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host, subjects in facts.items():
        for subject, value in subjects.items():
            groups[subject][summary(value)].append(host)
    rows = [
        (subject, fold(hosts), text)
        for subject, texts in groups.items()
        for text, hosts in sorted(texts.items(), key=lambda item: -len(item[1]))
        if text
    ]
    return aligned([("SUBJECT", "HOSTS", ""), *rows])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell, two blanks between them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def summary(value: object) -> str:
    """One line for a subject, equal for hosts that an operator would call equal; empty for what needs no line."""
    match value:
        case Unread(kind="absent", reason="not a lab host"):
            return ""
        case Unread():
            return f"{value.kind}: {value.reason}"
        case Cpu():
            counts = _words(socket=value.sockets, core=value.cores, thread=value.threads)
            return f"{value.model or 'model not named'}, {counts}, {_words(**{'NUMA node': value.numa_nodes})}"
        case Memory():
            return f"{_gib(value.total_mib)}, swap {_gib(value.swap_mib)}, /dev/shm {_gib(value.shm_mib)}"
        case dict():
            return "; ".join(_nic(each) for each in value.values()) or "none but the loopback"
        case Kernel():
            return f"{value.os_name or value.os_id or 'no os-release'}, {value.name} {value.release}"
        case Versions():
            return _versions(value)
        case Gpus():
            return _gpus(value)
        case Disk():
            return f"/ {_gib(value.root_free_mib)} free of {_gib(value.root_size_mib)}"
        case Clock():
            return _clock(value)
        case Lab():
            return f"{value.lab}; the machine's, shared by all its hosts: {', '.join(value.shared)}"
    return str(value)


def _words(**counts: int | None) -> str:
    return ", ".join(f"{'?' if n is None else n} {name}{'' if n == 1 else 's'}" for name, n in counts.items())


def _gib(mib: int | None) -> str:
    return "?" if mib is None else f"{mib / 1024:.1f} GiB"


def _nic(nic: object) -> str:
    if not isinstance(nic, Nic):
        return str(nic)
    extra = [f"{nic.speed_mbit} Mbit/s" if nic.speed_mbit else "", nic.driver or ""]
    return " ".join([nic.name, nic.state, f"mtu {nic.mtu}", *filter(None, extra)])


def _versions(value: Versions) -> str:
    named = {
        "python": value.python3,
        "torch": value.torch,
        "cuda": value.cuda,
        "nccl": value.nccl,
        "driver": value.driver,
        "iperf3": value.iperf3,
    }
    return ", ".join(f"{name} {version or '-'}" for name, version in named.items())


def _gpus(value: Gpus) -> str:
    names = [gpu.name or "?" for gpu in value.devices]
    each = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "none"
    return each + (f"; lost: {', '.join(value.lost)}" if value.lost else "")


def _clock(value: Clock) -> str:
    close = abs(value.offset_s) < _CLOCK_CLOSE_S
    return f"within {_CLOCK_CLOSE_S:g} s of ours" if close else f"{value.offset_s:+.1f} s off ours"

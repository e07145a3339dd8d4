"""Measurements and a probe's findings as tables, worst finding first."""

from collections.abc import Callable, Mapping, Sequence

from nodectl.common.units import format_size
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.report.devices import DEVICE_PROBES, device_conditions
from nodectl.report.facts import aligned

Fold = Callable[[Sequence[str]], str]
# conditions that are shown of what has no words of its own
_PLAIN = 4


def measurements_table(measurements: Sequence[Measurement], fold: Fold) -> str:
    """A line for each value, with its spread and the conditions that matter most."""
    header = ("PROBE", "HOSTS", "VALUE", "SPREAD", "CONDITIONS")
    rows = [
        (
            each.probe,
            each.direction or fold(each.hosts),
            _value(each) + _expected(each),
            "-" if each.spread is None else f"{100 * each.spread:.1f} %",
            _conditions(each),
        )
        for each in measurements
    ]
    return aligned([header, *rows])


def findings_list(findings: Sequence[Finding]) -> str:
    """A line for each finding, a second for its remedy."""
    lines = []
    for each in sorted(findings, key=lambda finding: finding.status.rank):
        about = f"{each.host}: {each.subject}" if each.kind == "host" and each.subject else each.subject or each.host
        lines.append(f"{each.status}  {each.check}  {about}: {each.actual}")
        if each.remedy:
            lines.append(f"  try: {each.remedy}")
    return "\n".join(lines)


def _value(measurement: Measurement) -> str:
    if measurement.unit == "GB/s" and measurement.probe not in ("memory", "hbm", "h2d", "p2p"):
        return f"{_number(measurement.value)} GB/s = {_number(8 * measurement.value)} Gbit/s"
    if measurement.probe == "sdc":
        return f"{measurement.value:.0f} {measurement.unit}"
    return f"{_number(measurement.value)} {measurement.unit}"


def _expected(measurement: Measurement) -> str:
    """`, 95 % of 800`, where a hardware profile says what it should be."""
    wanted = measurement.expected
    return "" if not wanted else f", {100 * measurement.value / wanted:.0f} % of {wanted:g}"


def _number(value: float) -> str:
    """Three decimals, and three digits where those would be noughts."""
    return f"{value:.3f}" if value >= 0.1 else f"{value:.3g}"


def _amount(value: object) -> str:
    return _number(value) if isinstance(value, int | float) else "?"


def _conditions(measurement: Measurement) -> str:
    if measurement.probe in DEVICE_PROBES:
        return device_conditions(measurement)
    return _TOLD.get(measurement.probe, _plainly)(measurement.conditions)


def _nccl(given: Mapping[str, object]) -> str:
    collective, size_bytes = given.get("collective"), given.get("size_bytes")
    sized = format_size(size_bytes) if isinstance(size_bytes, int) else "?"
    return f"{collective} {sized}, {given.get('backend')}, {given.get('ranks')} ranks{_chosen(given)}"


def _memory(given: Mapping[str, object]) -> str:
    return f"{given.get('kernel')}, {given.get('threads')} threads, {given.get('method')}"


def _storage(given: Mapping[str, object]) -> str:
    direct = "direct" if given.get("direct") else "page cache"
    return f"{given.get('pattern')}, {given.get('file_system')}, {direct}"


def _latency(given: Mapping[str, object]) -> str:
    return f"p99 {_amount(given.get('p99_us'))} us, min {_amount(given.get('min_us'))} us"


def _tcp(given: Mapping[str, object]) -> str:
    retransmits = given.get("retransmits")
    told = "" if retransmits is None else f", {retransmits} retransmits"
    return f"{given.get('streams')} stream, {given.get('congestion')}{told}"


def _training(given: Mapping[str, object]) -> str:
    gradient = given.get("gradient_bytes")
    sized = f"{gradient / 1e6:.1f} MB of gradients" if isinstance(gradient, int) else "?"
    return f"{given.get('ranks')} ranks, {given.get('backend')}, {sized}"


def _retrieval(given: Mapping[str, object]) -> str:
    return f"top {given.get('k')} of {given.get('rows')} x {given.get('dim')}, {given.get('shards')} shards"


def _plainly(given: Mapping[str, object]) -> str:
    """Of a probe that has no words of its own here."""
    told = (f"{name} {value}" for name, value in given.items() if isinstance(value, str | int | float))
    return ", ".join(list(told)[:_PLAIN])


def _chosen(given: Mapping[str, object]) -> str:
    """Of NCCL: `, RING/LL, NET/IB, rail0`; nothing of what is not told or differs between hosts."""
    words = ["/".join(str(given[name]) for name in ("algorithm", "protocol") if given.get(name))]
    words += [str(given[name]) for name in ("network", "rail") if isinstance(given.get(name), str)]
    return "".join(f", {word}" for word in words if word)


def _rdma(given: Mapping[str, object]) -> str:
    device, size_bytes = given.get("device"), given.get("size_bytes")
    ends = " -> ".join(dict.fromkeys(map(str, device))) if isinstance(device, list | tuple) else "?"
    sized = format_size(size_bytes) if isinstance(size_bytes, int) else "?"
    tail = f", p99 {_amount(given.get('p99_us'))} us" if "p99_us" in given else ""
    return f"{given.get('operation')} {sized}, {given.get('memory')} memory, {ends}{tail}"


_TOLD: dict[str, Callable[[Mapping[str, object]], str]] = {
    "latency": _latency,
    "memory": _memory,
    "nccl": _nccl,
    "rdma": _rdma,
    "retrieval": _retrieval,
    "storage": _storage,
    "tcp": _tcp,
    "training": _training,
}

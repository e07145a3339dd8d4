"""What RDMA ports have counted since the last reading; a counter at its end proves nothing and says so."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import About, Check, Subject
from nodectl.checks.network.infiniband import ports_of
from nodectl.facts.ib_ports import IbPort
from nodectl.model.finding import Finding
from nodectl.model.status import Status

# IBTA PortCounters: where these stop; devices with extended counters go on beyond
_ENDS = {
    "symbol_error": 65535,
    "link_error_recovery": 255,
    "link_downed": 255,
    "port_rcv_errors": 65535,
    "port_rcv_remote_physical_errors": 65535,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "VL15_dropped": 65535,
    "port_xmit_discards": 65535,
    "port_rcv_switch_relay_errors": 65535,
    "port_rcv_constraint_errors": 255,
    "port_xmit_constraint_errors": 255,
}
_WIRE = (
    *("symbol_error", "link_error_recovery", "port_rcv_errors", "port_rcv_remote_physical_errors"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped"),
)
# hw_counters: retries and losses that the transport had to mend
_TRANSPORT = (
    *("local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "implied_nak_seq_err", "rnr_nak_retry_err"),
    *("req_cqe_error", "resp_cqe_error", "out_of_buffer", "roce_adp_retrans_to", "roce_slow_restart_trans"),
)
_CLEAR = "clear the counters (`perfquery -R LID PORT`) and look again"
_CABLE = "reseat or change the cable, then look at the switch's port"


def counters(host: Subject) -> Iterator[Finding]:
    """Errors of the wire, flaps, discards, and retries of the transport, of each port."""
    ids = ("ib_errors", "ib_flaps", "ib_discards", "ib_retries")
    yield from host.unknown(host.facts.get("ib_ports"), "the ports' counters", *ids)
    ports = [port for port in ports_of(host) if port.counters]
    if not ports:
        if ports_of(host):  # of a tool that tells states only
            remedy = "look there at what `nodectl facts` reads"
            yield host.finding(
                "ib_errors", Status.UNKNOWN, expected="the ports' counters", actual="not told", remedy=remedy
            )
        return
    told = f"none on {len(ports)} ports"
    for check, look in (
        ("ib_errors", _errors),
        ("ib_flaps", _flaps),
        ("ib_discards", _discards),
        ("ib_retries", _retries),
    ):
        found = [each for port in ports for each in look(host, port)]
        yield from host.all_of(check, found, expected="none since the last reading", actual=told)


def _errors(host: Subject, port: IbPort) -> Iterator[Finding]:
    for name in _WIRE:
        yield from _counter(host, "ib_errors", port, name, "ib_errors", "ib_errors_first", _CABLE)


def _flaps(host: Subject, port: IbPort) -> Iterator[Finding]:
    yield from _counter(host, "ib_flaps", port, "link_downed", "ib_errors", "ib_downs_first", _CABLE)


def _discards(host: Subject, port: IbPort) -> Iterator[Finding]:
    remedy = "the fabric is congested or a peer is gone: look at the routes and at PFC/ECN of the switches"
    yield from _counter(host, "ib_discards", port, "port_xmit_discards", "ib_discards", None, remedy)


def _retries(host: Subject, port: IbPort) -> Iterator[Finding]:
    remedy = "packets are lost on the way: look at PFC, ECN and the MTU of every hop, before any setting of NCCL"
    for name in _TRANSPORT:
        yield from _counter(host, "ib_retries", port, name, "ib_retries", None, remedy)


def _counter(
    host: Subject, check: str, port: IbPort, name: str, limit_name: str, first_name: str | None, remedy: str
) -> Iterator[Finding]:
    if name not in port.counters:
        return
    grown = host.growth(f"ib.{port.label}.{name}", port.counters[name], _ENDS.get(name))
    subject = f"{port.label} {name}"
    if grown.stuck:
        expected = "a counter that can still show a change"
        yield host.finding(check, Status.UNKNOWN, subject, expected=expected, actual=grown.told, remedy=_CLEAR)
        return
    if grown.by is None and first_name is None:
        return
    limit = host.threshold(limit_name if grown.by is not None or first_name is None else first_name)
    if (grown.value if grown.by is None else grown.by) >= limit:
        expected = f"fewer than {limit:g}"
        yield host.finding(check, Status.WARNING, subject, expected=expected, actual=grown.told, remedy=remedy)


CHECKS: tuple[Check, ...] = (counters,)
_PROVES_NOTHING = "; unknown: the counter is at its end"
ABOUT = (
    About("ib_errors", "sysfs counters", f"warning: errors of the wire since the last reading{_PROVES_NOTHING}"),
    About("ib_flaps", "sysfs counters", f"warning: the link went down since the last reading{_PROVES_NOTHING}"),
    About("ib_discards", "sysfs counters", f"warning: many packets discarded since the last reading{_PROVES_NOTHING}"),
    About("ib_retries", "sysfs hw_counters", "warning: many retries since the last reading"),
)

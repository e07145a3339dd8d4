"""What RDMA ports have counted since the last reading; a counter at its end proves nothing and says so."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, judges
from nodectl.checks.network.infiniband import ports_of
from nodectl.facts.ib_ports import IbPort
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 210

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


IB_ERRORS_LIMIT = Threshold("ib_errors", 1, "between two readings; any at all is worth a look")
IB_ERRORS_FIRST_LIMIT = Threshold("ib_errors_first", 1000, "without an earlier reading only a clear number counts")
IB_DOWNS_FIRST_LIMIT = Threshold("ib_downs_first", 10, "each boot of a host or a switch counts one")
IB_DISCARDS_LIMIT = Threshold("ib_discards", 1000, "a congested fabric drops now and then")
IB_RETRIES_LIMIT = Threshold("ib_retries", 1000, "a lossy Ethernet fabric retries now and then")
_PROVES_NOTHING = "; unknown: the counter is at its end"
IB_ERRORS = Check(
    "ib_errors",
    looks_at="sysfs counters",
    fires=f"warning: errors of the wire since the last reading{_PROVES_NOTHING}",
    thresholds=(IB_ERRORS_LIMIT, IB_ERRORS_FIRST_LIMIT),
)
IB_FLAPS = Check(
    "ib_flaps",
    looks_at="sysfs counters",
    fires=f"warning: the link went down since the last reading{_PROVES_NOTHING}",
    thresholds=(IB_ERRORS_LIMIT, IB_DOWNS_FIRST_LIMIT),
)
IB_DISCARDS = Check(
    "ib_discards",
    looks_at="sysfs counters",
    fires=f"warning: many packets discarded since the last reading{_PROVES_NOTHING}",
    thresholds=(IB_DISCARDS_LIMIT,),
)
IB_RETRIES = Check(
    "ib_retries",
    looks_at="sysfs hw_counters",
    fires="warning: many retries since the last reading",
    thresholds=(IB_RETRIES_LIMIT,),
)


@judges(IB_ERRORS, IB_FLAPS, IB_DISCARDS, IB_RETRIES, reads=("ib_ports",))
def counters(host: Subject) -> Iterator[Finding]:
    """Errors of the wire, flaps, discards, and retries of the transport, of each port."""
    ids = (IB_ERRORS, IB_FLAPS, IB_DISCARDS, IB_RETRIES)
    yield from host.unknown(host.facts.get("ib_ports"), "the ports' counters", *ids)
    ports = [port for port in ports_of(host) if port.counters]
    if not ports:
        if ports_of(host):  # of a tool that tells states only
            remedy = "look there at what `nodectl facts` reads"
            yield host.finding(
                IB_ERRORS, Status.UNKNOWN, expected="the ports' counters", actual="not told", remedy=remedy
            )
        return
    told = f"none on {len(ports)} ports"
    for check, look in ((IB_ERRORS, _errors), (IB_FLAPS, _flaps), (IB_DISCARDS, _discards), (IB_RETRIES, _retries)):
        found = [each for port in ports for each in look(host, port)]
        yield from host.all_of(check, found, expected="none since the last reading", actual=told)


def _errors(host: Subject, port: IbPort) -> Iterator[Finding]:
    for name in _WIRE:
        yield from _counter(host, IB_ERRORS, port, name, IB_ERRORS_LIMIT, IB_ERRORS_FIRST_LIMIT, _CABLE)


def _flaps(host: Subject, port: IbPort) -> Iterator[Finding]:
    yield from _counter(host, IB_FLAPS, port, "link_downed", IB_ERRORS_LIMIT, IB_DOWNS_FIRST_LIMIT, _CABLE)


def _discards(host: Subject, port: IbPort) -> Iterator[Finding]:
    remedy = "the fabric is congested or a peer is gone: look at the routes and at PFC/ECN of the switches"
    yield from _counter(host, IB_DISCARDS, port, "port_xmit_discards", IB_DISCARDS_LIMIT, None, remedy)


def _retries(host: Subject, port: IbPort) -> Iterator[Finding]:
    remedy = "packets are lost on the way: look at PFC, ECN and the MTU of every hop, before any setting of NCCL"
    for name in _TRANSPORT:
        yield from _counter(host, IB_RETRIES, port, name, IB_RETRIES_LIMIT, None, remedy)


def _counter(
    host: Subject, check: Check, port: IbPort, name: str, change: Threshold, first: Threshold | None, remedy: str
) -> Iterator[Finding]:
    if name not in port.counters:
        return
    grown = host.growth(f"ib.{port.label}.{name}", port.counters[name], _ENDS.get(name))
    subject = f"{port.label} {name}"
    if grown.stuck:
        expected = "a counter that can still show a change"
        yield host.finding(check, Status.UNKNOWN, subject, expected=expected, actual=grown.text, remedy=_CLEAR)
        return
    if grown.by is None and first is None:
        return
    limit = host.threshold(change if grown.by is not None or first is None else first)
    if (grown.value if grown.by is None else grown.by) >= limit:
        expected = f"fewer than {limit:g}"
        yield host.finding(check, Status.WARNING, subject, expected=expected, actual=grown.text, remedy=remedy)

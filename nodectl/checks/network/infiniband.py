"""Whether RDMA ports are there, up, as fast as they should be, free of errors, and set up for use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodectl.checks.check import LOOK_THERE, Check, Subject, Threshold, failed_unless, judges, judges_fact
from nodectl.checks.kernel.settings import parse_nccl
from nodectl.checks.network.nics import LINK_FLAPS_LIMIT, nics_of, training_names
from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.facts.host_files import HostFiles, NcclFiles
from nodectl.facts.rdma import Gid, IbPort
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.compat import nccl_problems
from nodectl.profiles.nccl import asks_for_ib, is_set
from nodectl.profiles.schema import Nic as WantedNic

ORDER = 200

_RESEAT = "reseat or change the cable, then look at the switch's port"
_CABLE = f"{_RESEAT} (`iblinkinfo`, `ibdiagnet`)"
_LAYERS = {"infiniband": "InfiniBand", "roce": "Ethernet"}
# a rate is never quite what it is called: 56 is FDR's 54.54
_NEARLY = 0.95


def ports_of(host: Subject) -> tuple[IbPort, ...]:
    """Return the host's ports; none if they could not be read."""
    return host.fact("ib_ports", tuple) or ()


def is_active(port: IbPort) -> bool:
    """Its logical state is ACTIVE, in the words of sysfs (`4: ACTIVE`) or ibstat (`Active`)."""
    return (port.state or "").rpartition(" ")[2].lower() == "active"


def rdma_of_profile(host: Subject) -> list[WantedNic]:
    """Return the InfiniBand and RoCE interfaces that the hardware profile names."""
    return [nic for nic in host.wanted.hardware.nics if nic.kind in _LAYERS] if host.wanted else []


def _is_fast(port: IbPort, rate_gbit: float) -> bool:
    return port.rate_gbit_s is not None and port.rate_gbit_s >= _NEARLY * rate_gbit


def serving(host: Subject) -> tuple[IbPort, ...]:
    """Ports that a job would use: of the profile's kind, and of the named interfaces where some are named."""
    layers = {_LAYERS[nic.kind] for nic in rdma_of_profile(host)}
    named = training_names(host)
    return tuple(
        port
        for port in ports_of(host)
        if (not layers or port.link_layer in (None, *layers)) and (not named or port.netdev in (None, *named))
    )


IB_COUNT = Check(
    "ib_count",
    fires="fewer active ports of the profile's rate",
    remedy="look at `ibstat` and `lspci -d 15b3:` there; `dmesg` says why a device is gone",
    roles=("rdma",),
)


@judges(IB_COUNT, reads=("ib_ports",))
def count(host: Subject) -> Iterator[Finding]:
    """Require as many active ports of the rate as the hardware profile names."""
    unread = host.fact("ib_ports", Unread)
    for wanted in rdma_of_profile(host):
        expected = f"{wanted.count} active at {wanted.rate_gbit:g} Gbit/s or more"
        if unread and unread.kind == "unknown":
            yield from host.unread(IB_COUNT, unread, expected, promised=True)
            continue
        ports, good = _ports_for(host, wanted)
        dim = [port for port in ports if port not in good and None in (port.state, port.rate_gbit_s)]
        actual = unread.reason if unread else f"{len(good)} of {len(ports)} ports"
        status = failed_unless(len(good) >= wanted.count)
        if status is Status.FAILED and len(good) + len(dim) >= wanted.count:
            status, actual = Status.UNKNOWN, f"{actual}; of {len(dim)} state or rate is not told"
        yield host.finding(IB_COUNT, status, expected=expected, actual=actual)


def _ports_for(host: Subject, wanted: WantedNic) -> tuple[list[IbPort], list[IbPort]]:
    ports = [port for port in ports_of(host) if port.link_layer in (None, _LAYERS[wanted.kind])]
    return ports, [port for port in ports if is_active(port) and _is_fast(port, wanted.rate_gbit)]


def has_spare_ports(host: Subject) -> bool:
    """There are enough good ports without the others: what is down is not in use."""
    wanted = rdma_of_profile(host)
    return bool(wanted) and all(len(_ports_for(host, nic)[1]) >= nic.count for nic in wanted)


IB_STATE = Check(
    "ib_state",
    fires="not active; a warning where no profile wants it",
    expected="active",
    roles=("rdma",),
)
IB_PHYSICAL = Check(
    "ib_physical",
    fires="no link",
    expected="LinkUp",
    remedy=_CABLE,
)


@judges_fact(tuple, IB_STATE, IB_PHYSICAL, reads=("ib_ports",), unread="the ports' states")
def states(host: Subject, _all: tuple[IbPort, ...]) -> Iterator[Finding]:
    """Each port that a job would use is active, with its link up."""
    ports, spare = serving(host), has_spare_ports(host)
    if not ports:
        return
    # an Ethernet port without a cable is common; one of InfiniBand is there to be used
    status = Status.FAILED if rdma_of_profile(host) or training_names(host) else Status.WARNING
    judged = [port for port in ports if not spare and (port.link_layer != "Ethernet" or status is Status.FAILED)]
    down = (_state(host, port, status) for port in judged if port.state is None or not is_active(port))
    actual = f"{sum(map(is_active, ports))} of {len(ports)} active" + ("; the others are spare" if spare else "")
    yield from host.all_of(IB_STATE, down, actual=actual)
    physical = (
        _told(host, IB_PHYSICAL, port, port.physical_state, status)
        for port in judged
        if (port.physical_state or "").replace(" ", "").rpartition(":")[2].lower() not in ("linkup", "active")
    )
    yield from host.all_of(IB_PHYSICAL, physical, actual=actual)


def _state(host: Subject, port: IbPort, status: Status) -> Finding:
    initialising = (port.state or "").rpartition(" ")[2].lower() in ("init", "initializing")
    remedy = "no subnet manager has set it up: see `sminfo`, and start opensm" if initialising else _CABLE
    return _told(host, IB_STATE, port, port.state, status, remedy)


def _told(host: Subject, check: Check, port: IbPort, state: str | None, status: Status, remedy: str = "") -> Finding:
    status = Status.UNKNOWN if state is None else status
    return host.finding(check, status, port.label, actual=state or "not told", remedy=remedy)


IB_RATE = Check(
    "ib_rate",
    fires="slower than the profile's, or (of Ethernet: warning) than its siblings",
    remedy=f"the link came up slower than both ends can: {_CABLE}",
)


@judges_fact(tuple, IB_RATE, reads=("ib_ports",), unread="the ports' rates")
def rates(host: Subject, _all: tuple[IbPort, ...]) -> Iterator[Finding]:
    """Active ports have the profile's rate, else the rate of their siblings."""
    ports = [port for port in serving(host) if is_active(port)]
    if not ports:
        return
    wanted = max((nic.rate_gbit for nic in rdma_of_profile(host)), default=None)
    best: dict[str | None, float] = {}
    for port in ports:
        best[port.link_layer] = max(best.get(port.link_layer, 0.0), port.rate_gbit_s or 0.0)
    spare = has_spare_ports(host)
    slow = (
        _slow(host, port, need, named=wanted is not None)
        for port in ports
        if not spare and not _is_fast(port, need := best[port.link_layer] if wanted is None else wanted)
    )
    rated = " or ".join(f"{rate:g} Gbit/s" for rate in ([wanted] if wanted is not None else best.values()))
    yield from host.all_of(IB_RATE, slow, expected=rated, actual=counted(len(ports), "port has it", "ports have it"))


def _slow(host: Subject, port: IbPort, need_gbit: float, *, named: bool) -> Finding:
    """Return the finding of a slow port; without a profile an Ethernet port may be there for something else."""
    if port.rate_gbit_s is None:
        status, actual = Status.UNKNOWN, "not told"
    else:
        status = Status.FAILED if named or port.link_layer != "Ethernet" else Status.WARNING
        actual = f"{port.rate_gbit_s:g} Gbit/s"
    expected = f"{need_gbit:g} Gbit/s" if named else f"{need_gbit:g} Gbit/s, as its fastest sibling"
    return host.finding(IB_RATE, status, port.label, expected=expected if need_gbit else "a rate", actual=actual)


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

IB_ERRORS_LIMIT = Threshold("ib_errors", 1, "between two readings; any at all is worth a look")
IB_ERRORS_FIRST_LIMIT = Threshold("ib_errors_first", 1000, "without an earlier reading only a clear number counts")
IB_DOWNS_FIRST_LIMIT = Threshold("ib_downs_first", 10, "each boot of a host or a switch counts one")
IB_DISCARDS_LIMIT = Threshold("ib_discards", 1000, "a congested fabric drops now and then")
IB_RETRIES_LIMIT = Threshold("ib_retries", 1000, "a lossy Ethernet fabric retries now and then")
_SINCE = "since the last reading; unknown: the counter is at its end"
IB_ERRORS = Check(
    "ib_errors",
    fires=f"warning: errors of the wire {_SINCE}",
    remedy=_RESEAT,
    thresholds=(IB_ERRORS_LIMIT, IB_ERRORS_FIRST_LIMIT),
)
IB_FLAPS = Check(
    "ib_flaps",
    fires=f"warning: the link went down, and came back, {_SINCE}; failed: several times",
    remedy=_RESEAT,
    thresholds=(IB_ERRORS_LIMIT, IB_DOWNS_FIRST_LIMIT, LINK_FLAPS_LIMIT),
)
IB_DISCARDS = Check(
    "ib_discards",
    fires=f"warning: many packets discarded {_SINCE}",
    remedy="the fabric is congested or a peer is gone: look at the routes and at PFC/ECN of the switches",
    thresholds=(IB_DISCARDS_LIMIT,),
)
IB_RETRIES = Check(
    "ib_retries",
    fires="warning: many retries of the transport since the last reading",
    remedy="packets are lost on the way: look at PFC, ECN and the MTU of every hop, before any setting of NCCL",
    thresholds=(IB_RETRIES_LIMIT,),
)


@judges_fact(tuple, IB_ERRORS, IB_FLAPS, IB_DISCARDS, IB_RETRIES, reads=("ib_ports",), unread="the ports' counters")
def counters(host: Subject, ports: tuple[IbPort, ...]) -> Iterator[Finding]:
    """Errors of the wire, flaps, discards, and retries of the transport, of each port."""
    if not ports:
        return
    telling = [port for port in ports if port.counters]
    if not telling:  # of a tool that tells states only
        expected = "the ports' counters"
        yield host.finding(IB_ERRORS, Status.UNKNOWN, expected=expected, actual="not told", remedy=LOOK_THERE)
        return
    rows: tuple[tuple[Check, tuple[str, ...], Threshold, Threshold | None], ...] = (
        (IB_ERRORS, _WIRE, IB_ERRORS_LIMIT, IB_ERRORS_FIRST_LIMIT),
        (IB_FLAPS, ("link_downed",), IB_ERRORS_LIMIT, IB_DOWNS_FIRST_LIMIT),
        (IB_DISCARDS, ("port_xmit_discards",), IB_DISCARDS_LIMIT, None),
        (IB_RETRIES, _TRANSPORT, IB_RETRIES_LIMIT, None),
    )
    for check, names, change, first in rows:
        faults = (fault for port in telling for fault in _counters(host, check, port, names, change, first))
        actual = f"none on {counted(len(telling), 'port')}"
        yield from host.all_of(check, faults, expected="none since the last reading", actual=actual)


def _counters(
    host: Subject, check: Check, port: IbPort, names: tuple[str, ...], change: Threshold, first: Threshold | None
) -> Iterator[Finding]:
    label, counters = port.label, port.counters
    for name in names:
        if name not in counters:
            continue
        grown = host.growth(f"ib.{label}.{name}", counters[name], _ENDS.get(name))
        subject = f"{label} {name}"
        if grown.stuck:
            expected = "a counter that can still show a change"
            yield host.finding(check, Status.UNKNOWN, subject, expected=expected, actual=grown.text, remedy=_CLEAR)
        elif check is IB_FLAPS and grown.by is not None and grown.by >= host.threshold(LINK_FLAPS_LIMIT):
            expected, action = "a link that stays", "drain"
            yield host.finding(check, Status.FAILED, subject, expected=expected, actual=grown.text, action=action)
        else:
            yield from host.grew(check, subject, grown, change, first)


IB_SUBNET_MANAGER = Check(
    "ib_subnet_manager",
    fires="no lid, or no subnet manager",
    expected="a lid, and a subnet manager's",
    remedy="see `sminfo` there, and start a subnet manager (opensm) in the fabric",
)
IB_MTU = Check(
    "ib_mtu",
    fires="warning: a smaller MTU than the device can have",
    expected="as large as the device can",
    remedy="raise the MTU of the interface (RoCE: 4200 or more for 4096) or of the partition (InfiniBand)",
)


@judges_fact(tuple, IB_SUBNET_MANAGER, IB_MTU, reads=("ib_ports",), unread="the ports")
def managed(host: Subject, ports: tuple[IbPort, ...]) -> Iterator[Finding]:
    """Active InfiniBand ports have a subnet manager and a lid, and the MTU that they can have."""
    active = [port for port in ports if is_active(port)]
    fabric = [port for port in active if port.link_layer == "InfiniBand"]
    # who has a lid was set up by a subnet manager, even if a tool does not name it
    lost = (_unmanaged(host, port) for port in fabric if not port.lid or port.sm_lid == 0)
    if fabric:
        yield from host.all_of(
            IB_SUBNET_MANAGER, lost, expected="one", actual=counted(len(fabric), "port has one", "ports have one")
        )
    small = (
        host.finding(IB_MTU, Status.WARNING, port.label, expected=f"{port.mtu_max}", actual=f"{port.mtu_active}")
        for port in serving(host)
        if is_active(port) and port.mtu_active and port.mtu_max and port.mtu_active < port.mtu_max
    )
    if any(port.mtu_active for port in active):
        yield from host.all_of(IB_MTU, small, actual="every active port has it")


def _unmanaged(host: Subject, port: IbPort) -> Finding:
    status = Status.UNKNOWN if port.lid is None else Status.FAILED
    lid, manager = ("not told" if lid is None else str(lid) for lid in (port.lid, port.sm_lid))
    return host.finding(IB_SUBNET_MANAGER, status, port.label, actual=f"lid {lid}, subnet manager's {manager}")


GID_V2 = Check(
    "gid_v2",
    fires="no RoCE v2 GID of an IPv4 address",
    expected="a RoCE v2 GID of an IPv4 address",
)


@judges(GID_V2, reads=("gids", "ib_ports"))
def roce(host: Subject) -> Iterator[Finding]:
    """Each active RoCE port has a GID of version 2 with an IPv4 address."""
    wanted = any(nic.kind == "roce" for nic in rdma_of_profile(host))
    if wanted:
        yield from host.unknown(host.facts.get("ib_ports"), "a RoCE v2 GID", GID_V2)
    ports = [port for port in serving(host) if port.link_layer == "Ethernet" and is_active(port)]
    if not ports or not (wanted or training_names(host)):
        return
    yield from host.unread(GID_V2, host.facts.get("gids"))
    gids: tuple[Gid, ...] | None = host.fact("gids", tuple)
    if gids is not None:
        good = {(gid.device, gid.port) for gid in gids if (gid.version or "").lower().endswith("v2") and gid.ipv4}
        without = (_without_gid(host, port) for port in ports if (port.device, port.port) not in good)
        yield from host.all_of(GID_V2, without, actual=counted(len(ports), "port has one", "ports have one"))


def _without_gid(host: Subject, port: IbPort) -> Finding:
    remedy = f"give {port.netdev or 'its interface'} an IPv4 address; `show_gids` there lists what it has"
    return host.finding(GID_V2, Status.FAILED, port.label, actual="none", remedy=remedy)


NCCL_NETWORK = Check(
    "nccl_network",
    fires="two contradict each other; one names what is not there: an interface, adapter, port, network or file; "
    "warning: NCCL does without it",
    remedy="correct it where it is set, or take it away: NCCL finds interfaces and adapters by itself",
    roles=("nccl_env",),
)
_ALONE = "an active InfiniBand or RoCE port, for NCCL_NET=IB"
_HCA = "NCCL_IB_HCA"
_INTERFACES = ("NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME")


@judges(NCCL_NETWORK, reads=("nccl_files", "ib_ports", "nics", "host_files"))
def nccl_network(host: Subject) -> Iterator[Finding]:
    """Require what NCCL's variables name: else it ends, or silently takes something slower."""
    env = _nccl_env(host)
    nccl = host.wanted.stack.nccl if host.wanted else None
    for problem in nccl_problems(env, nccl):
        if problem.refuses:
            subject, expected = problem.reason.partition("=")[0], "variables that go together"
            yield host.finding(NCCL_NETWORK, Status.FAILED, subject, expected=expected, actual=problem.reason)
    if asks_for_ib(env) and not is_set(env, "NCCL_IB_DISABLE"):
        yield from _alone(host)
    for name in _INTERFACES:
        yield from _selected(host, env, name, tuple(nics_of(host)), Status.FAILED)
    yield from _adapters(host, env)
    files = host.fact("host_files", HostFiles)
    for path in files.missing if files else ():
        read = host.fact("nccl_files", NcclFiles)
        name = "NCCL_CONF_FILE" if read and read.user_path == path else "NCCL_TOPO_FILE"
        actual = f"{path} cannot be read: NCCL goes on without it"
        yield host.finding(NCCL_NETWORK, Status.WARNING, name, expected="a file that is there", actual=actual)


def _nccl_env(host: Subject) -> dict[str, str]:
    """Return NCCL's variables as it finds them: a session's before the user's file, and that before the machine's."""
    files, host_files = host.fact("nccl_files", NcclFiles), host.fact("host_files", HostFiles)
    texts = files.texts.values() if files else ()
    session = (
        {variable.name: variable.value for variable in host_files.variables if variable.file == "/etc/environment"}
        if host_files
        else {}
    )
    profile = host.wanted.nccl_env if host.wanted else {}
    return {**profile, **parse_nccl("\n".join(texts)), **session}


def _alone(host: Subject) -> Iterator[Finding]:
    ports, unread = host.facts.get("ib_ports"), host.fact("ib_ports", Unread)
    if unread and unread.kind == "unknown":
        yield from host.unread(NCCL_NETWORK, ports, _ALONE)
        return
    active = [port.label for port in ports_of(host) if is_active(port) and not port.is_efa]
    actual = f"{counted(len(active), 'port is', 'ports are')} active" if active else "no port of either kind is active"
    yield host.finding(NCCL_NETWORK, failed_unless(bool(active)), expected=_ALONE, actual=actual)


def _adapters(host: Subject, env: Mapping[str, str]) -> Iterator[Finding]:
    """Judge NCCL's choice of adapters; a host without any works as without the variable: by sockets."""
    unread = host.fact("ib_ports", Unread)
    there = tuple(f"{port.device}:{port.port}" for port in ports_of(host))
    if not is_set(env, "NCCL_IB_DISABLE") and (there or (unread and unread.kind == "absent")):
        yield from _selected(host, env, _HCA, there, Status.FAILED if there else Status.WARNING)


def _selected(
    host: Subject, env: Mapping[str, str], name: str, there: Sequence[str], status: Status
) -> Iterator[Finding]:
    value = env.get(name)
    if value and (there or status is Status.WARNING):
        chosen = _choice(value, there)
        expected = f"one that {name}={value} selects"
        actual = few(list(chosen)) if chosen else f"it selects none of {few(list(there)) or 'none'}"
        outcome = Status.OK if chosen else status
        yield host.finding(NCCL_NETWORK, outcome, name, expected=expected, actual=actual)


def _choice(value: str, there: Sequence[str]) -> list[str]:
    """NCCL's rule: all that an entry names, or all others after `^`."""
    entries = [entry for entry in value.removeprefix("^").removeprefix("=").split(",") if entry]
    named = [name for entry in entries for name in _named(value, entry, there)]
    return [name for name in there if (name in named) != value.startswith("^")]


def _named(value: str, entry: str, there: Sequence[str]) -> list[str]:
    """Return the names that begin so, or are called so after `=`; of an adapter the port that stands after a colon."""
    name, _, port = entry.partition(":")
    matches = str.__eq__ if value.removeprefix("^").startswith("=") else str.startswith
    parts = ((candidate, *candidate.partition(":")[::2]) for candidate in there)
    return [
        candidate
        for candidate, its_name, its_port in parts
        if matches(its_name, name) and (not port or its_port in ("", port))
    ]

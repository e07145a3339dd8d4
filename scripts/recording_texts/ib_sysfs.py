"""/sys/class/infiniband of a machine, as the collector's grep prints it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from .machines import Adapter, AdapterModel, Machine
from .network import gids

_LAYERS = {"infiniband": "InfiniBand", "ethernet": "Ethernet"}
_RATES = {100: "100 Gb/sec (4X EDR)", 200: "200 Gb/sec (4X HDR)", 400: "400 Gb/sec (4X NDR)"}
_COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
)
_HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "lifespan",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_remote_access_errors",
    "resp_cqe_error",
    "resp_local_length_error",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
    "rp_cnp_handled",
    "rp_cnp_ignored",
)


def ib_sysfs(machine: Machine) -> str:
    """All devices' files of one name together; then where each device sits, and its interface."""
    lines = [line for read in _files(machine.adapter) for each in machine.rdma for line in read(each)]
    for each in machine.rdma:
        lines += [f"{each.device}/pci:../../../0000:{each.pci}", f"{each.device}/net/{each.netdev}:0"]
    return "\n".join(lines) + "\n"


def _files(model: AdapterModel) -> Iterator[Callable[[Adapter], list[str]]]:
    """What grep goes through, pattern by pattern."""

    def one(name: str, value: Callable[[Adapter], object]) -> Callable[[Adapter], list[str]]:
        return lambda each: [f"{each.device}/{name}:{value(each)}"]

    yield one("fw_ver", lambda each: model.firmware)
    yield one("board_id", lambda each: model.board_id)
    yield one("hca_type", lambda each: model.ca_type)
    yield one("node_guid", lambda each: ":".join(each.guid[i : i + 4] for i in range(0, 16, 4)))
    yield one("device/numa_node", lambda each: each.numa)
    yield one("ports/1/state", lambda each: "4: ACTIVE")
    yield one("ports/1/phys_state", lambda each: "5: LinkUp")
    yield one("ports/1/rate", lambda each: _RATES[each.rate_gbit])
    yield one("ports/1/link_layer", lambda each: _LAYERS[each.kind])
    yield one("ports/1/lid", lambda each: f"0x{each.lid:x}")
    yield one("ports/1/sm_lid", lambda each: "0x1" if each.lid else "0x0")
    yield lambda each: [f"{each.device}/ports/1/counters/{name}:{_count(each.device, name)}" for name in _COUNTERS]
    yield lambda each: [
        f"{each.device}/ports/1/hw_counters/{name}:{_count(each.device, name)}" for name in _HW_COUNTERS
    ]
    yield lambda each: [f"{each.device}/ports/1/gids/{index}:{gid}" for index, gid, _, _ in gids(each)]
    yield lambda each: [
        f"{each.device}/ports/1/gid_attrs/types/{index}:{'RoCE v2' if version == 'v2' else 'IB/RoCE v1'}"
        for index, _, version, _ in gids(each)
    ]
    yield lambda each: [
        f"{each.device}/ports/1/gid_attrs/ndevs/{index}:{each.netdev}" for index, _, version, _ in gids(each) if version
    ]


def _count(device: str, counter: str) -> int:
    """Traffic has a number of its own, errors have none."""
    if counter == "lifespan":
        return 10
    moved = counter.endswith(("_data", "_packets")) and "marked" not in counter
    return zlib.crc32(f"{device} {counter}".encode()) * (4096 if counter.endswith("_data") else 3) if moved else 0

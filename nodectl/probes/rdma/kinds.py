"""Every reason for which an RDMA measurement fails, whom it blames, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from nodectl.model.status import Status


@dataclass(frozen=True, slots=True)
class Kind:
    """`is_host`: the end that says it is at fault, else the path between the two."""

    remedy: str
    is_host: bool = False
    status: Status = Status.FAILED


KINDS = {
    "not_installed": Kind("install the package perftest there", is_host=True, status=Status.UNKNOWN),
    "no_device": Kind(
        "see `rdma link` and `ibv_devices` there: is the adapter on the bus (`lspci`), its driver loaded, and its "
        "library installed (ibverbs-providers)?",
        is_host=True,
    ),
    "port_down": Kind("reseat or change the cable, then look at the switch's port; `rdma link` shows it", is_host=True),
    "no_subnet_manager": Kind("see `sminfo` there, and start a subnet manager (opensm) in the fabric", is_host=True),
    "bad_gid": Kind(
        "choose an index of a RoCE v2 GID with an IPv4 address with --gid-index (`show_gids` lists them), or leave it "
        "out; give the interface an IPv4 address",
        is_host=True,
    ),
    "memlock": Kind(
        "raise the memlock limit to unlimited for the login (`nodectl provision --tags limits`), log in anew and "
        "compare `ulimit -l`",
        is_host=True,
    ),
    "no_permission": Kind("let the login read and write /dev/infiniband/uverbs* (udev rule, group rdma)", is_host=True),
    "gpu_memory": Kind(
        "GPU memory cannot be registered: load nvidia-peermem, or use the open kernel modules (DMA-BUF)", is_host=True
    ),
    "port_busy": Kind("another program listens there: choose another --port, or none", is_host=True),
    "bad_option": Kind("this perftest does not know the option: bring both ends to one newer version", is_host=True),
    "version_mismatch": Kind("install one version of perftest on both ends"),
    "mismatch": Kind("both ends must be given the same test, size and count"),
    "link_layer": Kind("one end is InfiniBand, the other Ethernet: compare cabling and the adapters' port types"),
    "unresolved": Kind("the server's name has no address there: use addresses in the inventory"),
    "unreachable": Kind("check the route between the hosts, or name the network with --interface"),
    "firewall": Kind(
        "let TCP pass (one port can be chosen with --port) and, for RoCE v2, UDP port 4791, both ways between the hosts"
    ),
    "no_server": Kind("the other end does not listen: look at its finding, or run perftest by hand there"),
    "no_client": Kind("the server was there, but nobody came: look at the client's finding"),
    "link_cut": Kind("look at the cable and the switch's ports between them, and at the interfaces' error counters"),
    "peer_lost": Kind("the other end went away in the middle: look at its log"),
    "killed": Kind("see the host's log for who ended it (out of memory?)"),
    "timeout": Kind("try --iterations with fewer, or look at the path between them"),
    "other": Kind("run the command by hand on both ends"),
}

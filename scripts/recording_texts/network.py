"""What tools print of the InfiniBand and RoCE ports: ibstat, ibv_devinfo, rdma link, show_gids."""

from __future__ import annotations

from .machines import Adapter, AdapterModel, Machine

_SM_LID = 1


def ibstat(machine: Machine) -> str:
    """Each adapter with its one port."""
    model = machine.adapter
    return "".join(_ca(model, each) for each in machine.rdma)


def _ca(model: AdapterModel, adapter: Adapter) -> str:
    fabric = adapter.kind == "infiniband"
    fields = {
        "CA type": model.ca_type,
        "Number of ports": "1",
        "Firmware version": model.firmware,
        "Hardware version": "0",
        "Node GUID": f"0x{adapter.guid}",
        "System image GUID": f"0x{adapter.guid}",
    }
    port = {
        "State": "Active",
        "Physical state": "LinkUp",
        "Rate": str(adapter.rate_gbit),
        "Base lid": str(adapter.lid),
        "LMC": "0",
        "SM lid": str(_SM_LID if fabric else 0),
        "Capability mask": "0xa651e848" if fabric else "0x00010000",
        "Port GUID": f"0x{adapter.guid}",
        "Link layer": "InfiniBand" if fabric else "Ethernet",
    }
    text = f"CA '{adapter.device}'\n" + "".join(f"\t{key}: {value}\n" for key, value in fields.items())
    return text + "\tPort 1:\n" + "".join(f"\t\t{key}: {value}\n" for key, value in port.items())


def ibv_devinfo(machine: Machine) -> str:
    """`-v`, with the attributes that say something of the port."""
    model = machine.adapter
    return "\n".join(_hca(model, each) for each in machine.rdma) + "\n"


def _hca(model: AdapterModel, adapter: Adapter) -> str:
    fabric = adapter.kind == "infiniband"
    guid = ":".join(adapter.guid[i : i + 4] for i in range(0, 16, 4))
    speed = {100: "25.0 Gbps (32)", 200: "50.0 Gbps (64)", 400: "100.0 Gbps (128)"}[adapter.rate_gbit]
    device = {
        "transport": "InfiniBand (0)",
        "fw_ver": model.firmware,
        "node_guid": guid,
        "sys_image_guid": guid,
        "vendor_id": "0x02c9",
        "vendor_part_id": str(model.part_id),
        "hw_ver": "0x0",
        "board_id": model.board_id,
        "phys_port_cnt": "1",
        "max_mr_size": "0xffffffffffffffff",
        "max_qp": "131072",
        "max_qp_wr": "32768",
        "atomic_cap": "ATOMIC_HCA (1)",
    }
    port = {
        "state": "PORT_ACTIVE (4)",
        "max_mtu": "4096 (5)",
        "active_mtu": "4096 (5)",
        "sm_lid": str(_SM_LID if fabric else 0),
        "port_lid": str(adapter.lid),
        "port_lmc": "0x00",
        "link_layer": "InfiniBand" if fabric else "Ethernet",
        "max_msg_sz": "0x40000000",
        "gid_tbl_len": "8" if fabric else "255",
        "active_width": "4X (2)",
        "active_speed": speed,
        "phys_state": "LINK_UP (5)",
    }
    lines = [f"hca_id:\t{adapter.device}"]
    lines += [f"\t{f'{key}:':<32}{value}" for key, value in device.items()]
    lines += ["\t\tport:\t1"]
    lines += [f"\t\t\t{f'{key}:':<24}{value}" for key, value in port.items()]
    lines += [
        f"\t\t\tGID[{index:3}]:\t\t{gid}{f', RoCE {version}' if version else ''}"
        for index, gid, version, _ in gids(adapter)
    ]
    return "\n".join(lines) + "\n"


def rdma_link(machine: Machine) -> str:
    """A line a port."""
    text = ""
    for each in machine.rdma:
        if each.kind == "infiniband":
            prefix = "subnet_prefix fe80:0000:0000:0000"
            text += f"link {each.device}/1 {prefix} lid {each.lid} sm_lid {_SM_LID} lmc 0 "
        else:
            text += f"link {each.device}/1 "
        text += f"state ACTIVE physical_state LINK_UP netdev {each.netdev} \n"
    return text


def gids(adapter: Adapter) -> list[tuple[int, str, str, str]]:
    """(index, GID, RoCE version or nothing, IPv4 or nothing) as the port's table has them."""
    if adapter.kind == "infiniband":
        return [(0, f"fe80:0000:0000:0000:{_groups(adapter.guid)}", "", "")]
    local = f"fe80:0000:0000:0000:{_groups(_eui64(adapter.mac))}"
    octets = [int(part) for part in adapter.address.split(".")]
    mapped = "0000:0000:0000:0000:0000:ffff:" + _groups("".join(f"{octet:02x}" for octet in octets))
    return [
        (0, local, "v1", ""),
        (1, local, "v2", ""),
        (2, mapped, "v1", adapter.address),
        (3, mapped, "v2", adapter.address),
    ]


def _groups(digits: str) -> str:
    return ":".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def _eui64(mac: str) -> str:
    octets = [int(part, 16) for part in mac.split(":")]
    octets[0] ^= 2
    return "".join(f"{octet:02x}" for octet in (*octets[:3], 0xFF, 0xFE, *octets[3:]))


def show_gids(machine: Machine) -> str:
    """The table with its head and its count."""
    heads = ("DEV", "PORT", "INDEX", "GID", "IPv4", "VER", "DEV")
    text = "\t".join(heads) + "\n" + "\t".join("-" * len(head) for head in heads) + "\n"
    count = 0
    for each in machine.rdma:
        for index, gid, version, ipv4 in gids(each):
            text += f"{each.device}\t1\t{index}\t{gid}\t{ipv4 or '        '}\t{version or '        '}\t{each.netdev}\n"
            count += 1
    return f"{text}n_gids_found={count}\n"

"""`lspci -D -vvv`, short of what nobody reads: the bridges down to each device, its link and its access control."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .machines import Adapter, Machine

_SPEED = {3: "8GT/s", 4: "16GT/s", 5: "32GT/s"}
_ACS_OFF = "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-"
_ACS_CAP = "SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+"
_STATUS = "Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- >SERR- <PERR- INTx-"
_CONTROL = "I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx+"


@dataclass(frozen=True, slots=True)
class Device:
    """One function; `buses` are a bridge's own, the one behind it and the last below, `role` what kind of port."""

    address: str
    name: str
    numa: int
    generation: int = 0
    generation_now: int = 0
    width: int = 16
    driver: str = ""
    role: str = "Endpoint, MSI 00"
    buses: tuple[int, int, int] | None = None
    subsystem: str = ""
    serial: str = ""
    acs: bool = False


def lspci(machine: Machine) -> str:
    """All devices in the order of their addresses."""
    devices = sorted(_devices(machine), key=lambda each: each.address)
    return "\n".join(_shown(each) for each in devices)


def _devices(machine: Machine) -> Iterator[Device]:
    node = machine.adapters[0].numa if machine.adapters else 0
    yield Device("00:00.0", f"Host bridge: {_chipset(machine)}", node)
    for port, buses in machine.root_ports.items():
        switched = machine.nvswitches if machine.nvswitches and set(machine.nvswitches) & set(buses) else ()
        yield from _below(machine, port, tuple(sorted(buses)), switches=bool(switched))
    yield from _ends(machine)


def _chipset(machine: Machine) -> str:
    amd, intel = "Advanced Micro Devices, Inc. [AMD] Root Complex", "Intel Corporation Device 09a2 (rev 20)"
    return amd if "AMD" in machine.cpu.model else intel


def _below(machine: Machine, port: str, buses: tuple[int, ...], *, switches: bool) -> Iterator[Device]:
    """The root port and the bridges between it and its devices."""
    numa, generation = machine.numa_of(buses[0]), machine.gpu.pcie_gen
    own = int(port[:2], 16)
    maker = "Advanced Micro Devices, Inc. [AMD]" if "AMD" in machine.cpu.model else "Intel Corporation"
    root = f"PCI bridge: {maker} PCIe Root Port (prog-if 00 [Normal decode])"
    gpus = {gpu.bus for gpu in machine.gpus}
    direct = not gpus & set(buses) and not switches
    first = buses[0] if direct else min(own + 1, buses[0] - 2)
    last = max((*buses, *(b for b in machine.nvswitches if own < b <= own + 32 and not switches and not direct)))
    slot = 3 if direct else generation
    width = 1 if direct and machine.management.bus in buses else 16
    slot = min(slot if not direct else (machine.fabric.pcie_gen if machine.fabric else 3), generation)
    yield Device(
        port, root, numa, slot, slot, width, "pcieport", "Root Port (Slot+), MSI 00", (own, first, last), acs=True
    )
    if direct:
        return
    yield from _switch(machine, first, buses, numa)


def _bridge(machine: Machine, address: str, numa: int, buses: tuple[int, int, int], *, down: bool) -> Device:
    broadcom = "Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)"
    plx = "Broadcom / LSI PEX880xx PCIe Gen 4 Switch (rev b0)"
    name = f"PCI bridge: {broadcom if machine.gpu.pcie_gen > 4 else plx} (prog-if 00 [Normal decode])"
    role = "Downstream Port (Slot+), MSI 00" if down else "Upstream Port, MSI 00"
    top = machine.gpu.pcie_gen
    return Device(address, name, numa, top, top, 16, "pcieport", role, buses, acs=down)


def _switch(machine: Machine, upstream: int, buses: tuple[int, ...], numa: int) -> Iterator[Device]:
    """One switch where devices are one bridge apart; else one more in front of each device."""
    extra = [b for b in machine.nvswitches if not machine.flat and upstream < b <= buses[-1]]
    inner = upstream + 1
    yield _bridge(machine, f"{upstream:02x}:00.0", numa, (upstream, inner, max(*buses, *extra, 0)), down=False)
    for slot, bus in enumerate(buses):
        if machine.flat:
            yield _bridge(machine, f"{inner:02x}:{slot:02x}.0", numa, (inner, bus, bus), down=True)
            continue
        yield _bridge(machine, f"{inner:02x}:{4 * slot:02x}.0", numa, (inner, bus - 2, bus), down=True)
        yield _bridge(machine, f"{bus - 2:02x}:00.0", numa, (bus - 2, bus - 1, bus), down=False)
        yield _bridge(machine, f"{bus - 1:02x}:00.0", numa, (bus - 1, bus, bus), down=True)
    if extra:
        yield _bridge(machine, f"{inner:02x}:10.0", numa, (inner, extra[0] - 2, extra[-1]), down=True)
        yield _bridge(machine, f"{extra[0] - 2:02x}:00.0", numa, (extra[0] - 2, extra[0] - 1, extra[-1]), down=False)
        for slot, bus in enumerate(extra):
            place = f"{extra[0] - 1:02x}:{slot:02x}.0"
            yield _bridge(machine, place, numa, (extra[0] - 1, bus, bus), down=True)


def _ends(machine: Machine) -> Iterator[Device]:
    model = machine.gpu
    kind = "3D controller" if model.data_centre else "VGA compatible controller"
    for gpu in machine.gpus:
        yield Device(
            gpu.address, f"{kind}: NVIDIA Corporation {model.pci_name} (rev a1)", gpu.numa, model.pcie_gen,
            model.idle_gen, 16, "nvidia", subsystem=f"NVIDIA Corporation Device {model.subsystem_id.lower()}",
        )  # fmt: skip
    for bus in machine.nvswitches:
        name = f"Bridge: NVIDIA Corporation Device {machine.nvswitch_id} (rev a1)"
        yield Device(f"{bus:02x}:00.0", name, machine.numa_of(bus), 4, 4, 2, "nvidia-nvswitch")
    for each in machine.rdma:
        adapter = machine.adapter
        kind = "Infiniband" if each.kind == "infiniband" else "Ethernet"
        name = f"{kind} controller: Mellanox Technologies {adapter.pci_name}"
        yield Device(
            each.pci, name, each.numa, adapter.pcie_gen, adapter.pcie_gen, 16, "mlx5_core",
            subsystem=f"Mellanox Technologies {adapter.pci_name}", serial=_serial(each),
        )  # fmt: skip
    nic = machine.management
    maker = (
        "Intel Corporation Ethernet Controller X710 for 10GBASE-T" if nic.rate_gbit == 10 else "Intel Corporation I210"
    )
    yield Device(nic.pci, f"Ethernet controller: {maker} (rev 03)", nic.numa, 1, 1, 1, driver_of(nic.rate_gbit))


def driver_of(rate_gbit: int) -> str:
    """The management adapter's driver."""
    return "i40e" if rate_gbit == 10 else "igb"


def _serial(adapter: Adapter) -> str:
    return "-".join(adapter.guid[i : i + 2] for i in range(0, 16, 2))


def _shown(device: Device) -> str:
    lines = [f"0000:{device.address} {device.name}"]
    lines += [f"\tSubsystem: {device.subsystem}"] if device.subsystem else []
    lines += [f"\tControl: {_CONTROL}", f"\tStatus: {_STATUS}", "\tLatency: 0", f"\tNUMA node: {device.numa}"]
    if device.buses:
        primary, secondary, last = device.buses
        buses = f"primary={primary:02x}, secondary={secondary:02x}, subordinate={last:02x}, sec-latency=0"
        lines += [f"\tBus: {buses}", "\tBridgeCtl: Parity+ SERR+ NoISA- VGA- VGA16- MAbort- >Reset- FastB2B-"]
    if device.generation:
        lines += _express(device)
    if device.acs:
        lines += ["\tCapabilities: [148 v1] Access Control Services"]
        lines += [f"\t\tACSCap:\t{_ACS_CAP}", f"\t\tACSCtl:\t{_ACS_OFF}"]
    lines += [f"\tCapabilities: [2f0 v1] Device Serial Number {device.serial}"] if device.serial else []
    lines += [f"\tKernel driver in use: {device.driver}"] if device.driver else []
    return "\n".join(lines) + "\n"


def _express(device: Device) -> list[str]:
    top, now = _speed(device.generation), _speed(device.generation_now)
    slower = "ok" if top == now else "downgraded"
    corrected = "CorrErr- NonFatalErr- FatalErr- UnsupReq- AuxPwr- TransPend-"
    return [
        f"\tCapabilities: [60] Express (v2) {device.role}",
        "\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0",
        "\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-",
        "\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes",
        f"\t\tDevSta:\t{corrected}",
        f"\t\tLnkCap:\tPort #0, Speed {top}, Width x{device.width}, ASPM not supported",
        "\t\tLnkCtl:\tASPM Disabled; RCB 64 bytes, Disabled- CommClk+",
        f"\t\tLnkSta:\tSpeed {now} ({slower}), Width x{device.width} (ok)",
        "\t\t\tTrErr- Train- SlotClk+ DLActive+ BWMgmt- ABWMgmt-",
    ]


def _speed(generation: int) -> str:
    return {1: "2.5GT/s", 2: "5GT/s"}.get(generation) or _SPEED[generation]

"""The three machines of the bundled recordings: what is in them, where it sits, and names that were made up."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from .machines import Adapter, AdapterModel, Cpu, Gpu, GpuModel, Machine


def _digest(*parts: object) -> str:
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def _uuid(machine: str, index: int) -> str:
    text = _digest(machine, "gpu", index)
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def _guid(machine: str, device: str) -> str:
    return f"b83fd203{_digest(machine, device)[:8]}"


def mac_of(guid: str) -> str:
    """A card's MAC: the outer bytes of its GUID's maker and its own."""
    text = guid[:6] + guid[10:]
    return ":".join(text[i : i + 2] for i in range(0, 12, 2))


def _gpus(machine: str, places: Mapping[int, int], serial: int) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(index, bus, numa, _uuid(machine, index), str(serial + 37 * index) if serial else "N/A")
        for index, (bus, numa) in enumerate(places.items())
    )


def _infiniband(machine: str, places: Mapping[str, tuple[int, int]], rate_gbit: int, lid: int) -> list[Adapter]:
    """{device: (bus, NUMA node)} of single-port InfiniBand adapters."""
    found = []
    for index, (device, (bus, numa)) in enumerate(places.items()):
        guid = _guid(machine, device)
        netdev = f"ibp{bus}s0"
        found.append(
            Adapter(netdev, bus, 0, numa, "infiniband", rate_gbit, mac_of(guid), device, guid, lid + 4 * index)
        )
    return found


def _storage(machine: str, devices: tuple[str, str], bus: int, numa: int, rate_gbit: int) -> list[Adapter]:
    """Both Ethernet ports of a storage adapter."""
    return [
        Adapter(
            f"enp{bus}s0f{function}np{function}",
            bus,
            function,
            numa,
            "ethernet",
            rate_gbit,
            mac_of(_guid(machine, device)),
            device,
            _guid(machine, device),
            address=f"10.31.{function}.11",
        )
        for function, device in enumerate(devices)
    ]


def _management(machine: str, name: str, bus: int, numa: int, rate_gbit: int) -> Adapter:
    mac = mac_of(f"a0369f00{_digest(machine, name)[:8]}")
    return Adapter(name, bus, 0, numa, "ethernet", rate_gbit, mac, address="10.20.0.11")


def _dgx_a100() -> Machine:
    name = "dgx-a100"
    model = GpuModel(
        "NVIDIA A100-SXM4-80GB", "Device 20b2", "NVIDIA", "Ampere", "20B2", "147F", "92.00.45.00.03",
        "692-2G506-0212-002", "20B2-895-A1", 81920, 617, 131072, 4, 4, "P0", 210, 1410, 1593, 1593, 400, 61.4, 640,
        nvlinks=12, nvlink_gb_s="25",
    )  # fmt: skip
    gpus = _gpus(name, {0x07: 3, 0x0F: 3, 0x47: 1, 0x4E: 1, 0x87: 7, 0x90: 7, 0xB7: 5, 0xBD: 5}, 1565020014800)
    first = {"mlx5_0": (0x0C, 3), "mlx5_1": (0x12, 3), "mlx5_2": (0x4B, 1), "mlx5_3": (0x54, 1)}
    last = {"mlx5_6": (0x8D, 7), "mlx5_7": (0x94, 7), "mlx5_8": (0xBA, 5), "mlx5_9": (0xCC, 5)}
    adapters = _infiniband(name, first, 200, 21) + _storage(name, ("mlx5_4", "mlx5_5"), 0x61, 2, 100)
    return Machine(
        name, "DGX A100 80 GB: 8 GPUs on NVSwitch, 8 HDR InfiniBand adapters", "dgx-a100", model, gpus,
        (*adapters, *_infiniband(name, last, 200, 37)), _management(name, "enp226s0", 0xE2, 4, 1),
        Cpu("AMD EPYC 7742 64-Core Processor", "AuthenticAMD", 23, 49, 0, 2, 64, 8, 2250, 1500), 2048, 64,
        {
            "00:01.1": (0x07, 0x0C, 0x0F, 0x12), "40:01.1": (0x47, 0x4B, 0x4E, 0x54), "60:03.1": (0x61,),
            "80:01.1": (0x87, 0x8D, 0x90, 0x94), "b0:01.1": (0xB7, 0xBA, 0xBD, 0xCC), "e0:01.2": (0xE2,),
        },
        flat=False,
        fabric=AdapterModel("MT28908 Family [ConnectX-6]", "MT4123", 4123, "MT_0000000223", "20.39.3004", 4),
        nvswitches=(0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9), nvswitch_id="1af1",
    )  # fmt: skip


def _h100_8() -> Machine:
    name = "h100-8"
    model = GpuModel(
        "NVIDIA H100 80GB HBM3", "Device 2330", "NVIDIA", "Hopper", "2330", "16C1", "96.00.A5.00.01",
        "692-2G520-0200-000", "2330-885-A1", 81559, 551, 131072, 5, 5, "P0", 345, 1980, 2619, 2619, 700, 71.3, 2560,
        nvlinks=18, nvlink_gb_s="26.562",
    )  # fmt: skip
    gpus = _gpus(name, {0x1B: 0, 0x43: 0, 0x52: 0, 0x61: 0, 0x9D: 1, 0xC3: 1, 0xD1: 1, 0xDF: 1}, 1650923001200)
    first = {"mlx5_0": (0x18, 0), "mlx5_3": (0x40, 0), "mlx5_4": (0x4F, 0), "mlx5_5": (0x5E, 0)}
    last = {"mlx5_6": (0x9A, 1), "mlx5_7": (0xC0, 1), "mlx5_8": (0xCE, 1), "mlx5_9": (0xDC, 1)}
    adapters = _infiniband(name, first, 400, 101) + _storage(name, ("mlx5_1", "mlx5_2"), 0x29, 0, 200)
    return Machine(
        name, "8 H100 SXM on NVSwitch, 8 NDR InfiniBand adapters", "h100-8", model, gpus,
        (*adapters, *_infiniband(name, last, 400, 133)), _management(name, "enp170s0", 0xAA, 1, 10),
        Cpu("Intel(R) Xeon(R) Platinum 8480C", "GenuineIntel", 6, 143, 8, 2, 56, 2, 2000, 800), 2048, 64,
        {
            "15:01.0": (0x18, 0x1B), "26:01.0": (0x29,), "37:01.0": (0x40, 0x43), "48:01.0": (0x4F, 0x52),
            "59:01.0": (0x5E, 0x61), "97:01.0": (0x9A, 0x9D), "a7:01.0": (0xAA,), "b7:01.0": (0xC0, 0xC3),
            "c7:01.0": (0xCE, 0xD1), "d7:01.0": (0xDC, 0xDF), "00:05.0": (0x07, 0x08, 0x09, 0x0A),
        },
        flat=True,
        fabric=AdapterModel("MT2910 Family [ConnectX-7]", "MT4129", 4129, "MT_0000000838", "28.39.3004", 5),
        nvswitches=(0x07, 0x08, 0x09, 0x0A), nvswitch_id="22a3",
    )  # fmt: skip


def _rtx4090_3() -> Machine:
    name = "rtx4090-3"
    model = GpuModel(
        "NVIDIA GeForce RTX 4090", "Device 2684", "GeForce", "Ada Lovelace", "2684", "16F1", "95.02.3C.00.02",
        "N/A", "2684-301-A1", 24564, 481, 256, 4, 1, "P8", 210, 3105, 405, 10501, 450, 17.1, 192, data_centre=False,
    )  # fmt: skip
    return Machine(
        name, "3 RTX 4090 behind one PCIe switch on a desktop board: no NVLink, no InfiniBand", "rtx4090-3", model,
        _gpus(name, {0x03: 0, 0x04: 0, 0x05: 0}, 0), (), _management(name, "enp8s0", 0x08, 0, 10),
        Cpu("AMD Ryzen 9 7950X 16-Core Processor", "AuthenticAMD", 25, 97, 2, 1, 16, 1, 4500, 400), 128, 32,
        {"00:01.1": (0x03, 0x04, 0x05), "00:02.1": (0x08,)}, flat=True,
    )  # fmt: skip


MACHINES = (_dgx_a100(), _rtx4090_3(), _h100_8())

"""NVLink, peer access and the matrix of GPUs, and NVSwitch's fabric manager."""

from dataclasses import replace
from typing import Any

from nodectl.checks.gpu import nvlink
from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.packages import Package, Packages
from nodectl.facts.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink, NvLink, NvLinkGpu
from nodectl.facts.parsers.nvidia.smi_topo import NvidiaSmiP2p, NvidiaSmiTopo
from nodectl.facts.services import Unit, Units
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.profiles.resolve import Resolved, resolve
from tests.checks.gpus import all_with, eight
from tests.checks.table import ABSENT, DENIED, UNREAD, Case, dgx, found, plain, quiet

BRIDGED = dgx(link="nvlink-bridge", nvswitch=False)
PCIE = resolve("rtx4090-3", "cu128", "stock")
RACK = resolve("gb200-4", "cu129", "stock")
NAMES = tuple(f"GPU{index}" for index in range(4))


def composed(gpus: str) -> Resolved:
    return resolve(gpus, "none", "stock")


def fabric_with(field: str, word: object) -> dict[str, object]:
    changes: dict[str, Any] = {field: word}
    return eight(**changes)


def links(*changes: dict[str, Any] | None, gpus: int = 4, **rest: Any) -> dict[str, object]:
    """GPUs of twelve links; the last GPU's first links are changed, None for what is not told of it at all."""
    made = []
    for index in range(gpus):
        mine: list[NvLink] = [NvLink(n, True, 25.0, 0, 0, 0) for n in range(12)]
        if index == gpus - 1:
            mine[: len(changes)] = [replace(link, **(new or {})) for link, new in zip(mine, changes, strict=False)]
        made.append(NvLinkGpu(index, "NVIDIA A100-SXM4-80GB", f"GPU-{index}", tuple(mine)))
    made[-1] = replace(made[-1], **rest)
    return {"nvlink": NvidiaSmiNvlink(tuple(made))}


def untold(message: str | None, number: int = 1, name: str = "A100") -> dict[str, object]:
    gpus = (NvLinkGpu(index, name, f"GPU-{index}", None, message) for index in range(number))
    return {"nvlink": NvidiaSmiNvlink(tuple(gpus))}


def carried(*active: int) -> dict[str, object]:
    """SXM2 modules with so many active links of six."""
    gpus = []
    for index, number in enumerate(active):
        six = tuple(NvLink(n, n < number, 25.0, 0, 0, 0) for n in range(6))
        gpus.append(NvLinkGpu(index, "Tesla V100-SXM2-32GB", f"GPU-{index}", six))
    return {"nvlink": NvidiaSmiNvlink(tuple(gpus))}


def peers(word: str = "OK", only: str = "GPU3") -> dict[str, object]:
    status = {a: {b: word if only in (a, b) else "OK" for b in NAMES if a != b} for a in NAMES}
    return {"p2p": NvidiaSmiP2p(NAMES, status)}


def matrix(word: str = "NV12", only: str = "GPU3", **numa: str | None) -> dict[str, object]:
    rows = {a: {b: word if only in (a, b) else "NV12" for b in NAMES if a != b} for a in NAMES}
    nodes = {**{name: str(index // 2) for index, name in enumerate(NAMES)}, **numa}
    topo = NvidiaSmiTopo(NAMES, (), {}, {name: {**rows[name], "NIC0": "SYS"} for name in NAMES}, {}, nodes, {})
    return {"gpu_topology": topo}


IDLE = "NVML: Unable to retrieve NVLink information as all links are inActive"
COUNTERS = ("replay_errors", "recovery_errors", "crc_errors")
OFF: dict[str, Any] = {"active": False, "speed_gb_s": None}
NVLINK = [
    Case("nvlink_active", "failed", links(OFF), dgx(), subject="GPU 3", action="reset GPU"),
    Case("nvlink_active", "failed", links(OFF), plain(), subject="GPU 3"),
    Case("nvlink_active", "ok", links(OFF, gpus=1), plain()),
    Case("nvlink_active", "ok", links(OFF, gpus=1), BRIDGED),
    Case("nvlink_active", "ok", links(OFF), PCIE),
    Case("nvlink_active", "unknown", links({"active": None}), dgx(), subject="GPU 3"),
    Case("nvlink_active", "failed", {"nvlink": UNREAD}, dgx()),
    Case("nvlink_active", "failed", {"nvlink": ABSENT}, dgx()),
    Case("nvlink_active", "nothing", {"nvlink": UNREAD}, PCIE),
    Case("nvlink_active", "nothing", {"nvlink": ABSENT}),
    Case("nvlink_active", "failed", untold("NVML: all links are inActive"), dgx(), subject="GPU 0", action="reset GPU"),
    Case("nvlink_active", "skipped", untold("NVML: all links are inActive")),
    Case("nvlink_active", "skipped", untold("Nvlink queries are not supported for Devices in MIG mode")),
    Case("nvlink_active", "unknown", untold(None), dgx(), subject="GPU 0"),
    Case("nvlink_count", "failed", links(OFF), dgx()),
    Case("nvlink_count", "failed", links(links=()), dgx()),
    Case("nvlink_count", "ok", links(), plain()),
    # eleven of a module's twelve, on all alike
    Case("nvlink_count", "failed", links(OFF, gpus=1), dgx()),
    Case("nvlink_count", "warning", links(OFF, gpus=1), plain()),
    # of a card a bridge decides, and without one there is none
    Case("nvlink_count", "ok", links(OFF, gpus=1, name="NVIDIA A100 80GB PCIe"), plain()),
    Case("nvlink_count", "ok", links(*[OFF] * 12, gpus=1), plain()),
    Case("nvlink_count", "unknown", untold("Unknown Error", 2), dgx()),
    # modules of one host that use no link at all
    Case("nvlink_count", "failed", untold(IDLE, 4, "NVIDIA H200"), composed("4 x h200")),
    Case("nvlink_count", "warning", untold(IDLE, 4, "NVIDIA H200"), plain()),
    Case("nvlink_count", "nothing", untold(IDLE, 1, "NVIDIA H200"), plain()),
    Case("nvlink_count", "nothing", untold(IDLE, 4, "NVIDIA A100 80GB PCIe"), plain()),
    # of an SXM2 module its carrier board decides
    Case("nvlink_count", "ok", carried(4, 4, 5, 5), plain()),
    Case("nvlink_speed", "failed", links({"speed_gb_s": 12.5}), dgx(), subject="GPU 3", action="reset GPU"),
    Case("nvlink_speed", "unknown", links({"speed_gb_s": None}), dgx(), subject="GPU 3"),
    Case("nvlink_errors", "ok", links({"crc_errors": 4}), dgx()),
    Case("nvlink_errors", "warning", links({"crc_errors": 5}), dgx(), subject="GPU 3"),
    Case("nvlink_errors", "ok", links({"crc_errors": 5}), dgx(), before={"nvlink.GPU-3.0.crc_errors": 5}),
    Case("nvlink_errors", "warning", links({"crc_errors": 5}), dgx(), before={"nvlink.GPU-3.0.crc_errors": 4}),
    Case("nvlink_errors", "ok", links({"recovery_errors": 5}), dgx(), before={"nvlink.GPU-3.0.recovery_errors": 5}),
    Case("nvlink_errors", "failed", links({"recovery_errors": 5}), dgx(), subject="GPU 3", action="reset GPU"),
    Case("nvlink_errors", "unknown", links(*[dict.fromkeys(COUNTERS)] * 12), dgx(), subject="GPU 3"),
    Case("p2p", "ok", peers(), dgx()),
    Case("p2p", "failed", peers("CNS"), dgx()),
    Case("p2p", "ok", peers("TNS"), BRIDGED),
    Case("p2p", "nothing", peers("CNS"), PCIE),
    Case("p2p", "nothing", peers("CNS")),
    Case("p2p", "unknown", {"p2p": UNREAD}, dgx()),
    # the stock driver offers none; a bridge needs no BAR1; data-centre cards have another way
    Case("gpu_topology", "ok", matrix(), dgx()),
    Case("gpu_topology", "failed", matrix("SYS"), dgx()),
    Case("gpu_topology", "failed", matrix("NV4"), dgx()),
    Case("gpu_topology", "failed", matrix("SYS"), BRIDGED),
    Case("gpu_topology", "ok", matrix(), BRIDGED),
    Case("gpu_topology", "nothing", matrix("SYS"), PCIE),
]  # fmt: skip


def unit(active: str = "active", enabled: str = "enabled", load: str = "loaded") -> dict[str, object]:
    name = "nvidia-fabricmanager"
    return {"units": Units("running", {name: Unit(name, load, active, "running", enabled, "exit-code")}, ())}


def manager(version: str, driver: str | None = "580.95.05") -> dict[str, object]:
    return {"fabric_manager": FabricManager(version), "versions": Versions("/v", driver=driver), **unit()}


def dpkg(driver: bool | None, manager: bool) -> dict[str, object]:
    """Holds of the driver's packages, None where it is not dpkg's, and of fabric manager's; one is no driver."""
    parts = [
        Package("nvidia-fabricmanager", "580.95.05-1", manager),
        Package("nvidia-container-toolkit", "1.17.8-1", False),
    ]
    if driver is not None:
        parts += [Package(name, "580.95.05-1", driver) for name in ("nvidia-driver", "libcuda1", "nvidia-smi")]
    return {"packages": Packages({part.name: part for part in parts})}


MANAGER = [
    Case("fabric_manager", "ok", unit(), dgx()),
    Case("fabric_manager", "failed", unit("failed"), dgx()),
    Case("fabric_manager", "failed", unit("inactive", load="not-found"), dgx()),
    Case("fabric_manager", "warning", unit(enabled="disabled"), dgx()),
    Case("fabric_manager", "unknown", {"units": Unread("absent", "no systemd runs there")}, dgx()),
    Case("fabric_manager", "nothing", unit("failed"), PCIE),
    Case("fabric_manager_hold", "ok", dpkg(driver=True, manager=True), dgx()),
    Case("fabric_manager_hold", "ok", dpkg(driver=False, manager=False), dgx()),
    Case("fabric_manager_hold", "warning", dpkg(driver=False, manager=True), dgx()),
    Case("fabric_manager_hold", "warning", dpkg(driver=True, manager=False), dgx()),
    Case("fabric_manager_hold", "nothing", dpkg(driver=None, manager=True), dgx()),
    Case("fabric_manager_hold", "nothing", dpkg(driver=False, manager=True), PCIE),
    # what it could not do before it started is over
    Case("fabric_manager_version", "ok", manager("580.95.05"), dgx()),
    Case("fabric_manager_version", "failed", manager("580.65.06"), dgx(), action="none"),
    Case("fabric_manager_version", "failed", {"fabric_manager": ABSENT}, dgx()),
    Case("fabric_manager_version", "failed", {"fabric_manager": UNREAD}, dgx()),
    Case("fabric_manager_version", "unknown", {"fabric_manager": DENIED}, dgx()),
    Case("fabric_manager_version", "unknown", manager("580.95.05", None), dgx()),
    Case("gpu_fabric", "ok", eight(), dgx()),
    Case("gpu_fabric", "failed", eight(fabric_state="In Progress"), dgx(), action="reset GPU"),
    Case("gpu_fabric", "failed", eight(fabric_status="Insufficient Resources"), dgx()),
    *(
        Case("gpu_fabric", "failed", fabric_with(f"fabric_{name}", word), dgx(), subject="GPU 7 (0000:77:00.0)")
        for name, word in (
            ("state", "Not Started"),
            ("status", "Some New Word"),
            ("health", "Limited Capacity"),
            ("bandwidth", "Degraded"),
            ("route_recovery", "True"),
            ("route_unhealthy", "True"),
            ("configuration", "Incorrect SysGUID"),
            ("clique_id", 7),
            ("cluster_uuid", "b2daed23-0000-0000-0000-000000000000"),
        )
    ),
    # words that other values of nvidia-smi are refused with
    *(
        Case("gpu_fabric", "failed", eight(refused={"fabric_status": word}), dgx())
        for word in ("Insufficient Resources", "In use by another client", "Unknown Error", "Timeout")
    ),
    Case("gpu_fabric", "failed", eight(fabric_state="In Progress"), plain()),
    Case("gpu_fabric", "unknown", eight(refused={"fabric_state": "N/A"}), dgx()),
    Case("gpu_fabric", "unknown", eight(refused={"fabric_state": "Unknown Error"}), dgx()),
    Case("gpu_fabric", "skipped", all_with(refused={"fabric_state": "N/A"}), dgx()),
    Case("gpu_fabric", "nothing", eight(fabric_state="Not Started"), PCIE),
    Case("gpu_fabric", "failed", eight(fabric_state="In Progress"), composed("8 x h100-80gb-hbm3")),
    # the rack's NVSwitches, which no profile of a node has
    Case("gpu_fabric", "failed", eight(name="NVIDIA GB200", fabric_state="In Progress"), RACK),
    Case("gpu_fabric", "failed", eight(name="NVIDIA GB300", fabric_status="Timeout"), RACK),
    Case("gpu_fabric", "ok", all_with(name="NVIDIA GB200", fabric_clique_id=32766), RACK),
]


QUIET = quiet(links(), dgx(), checks="nvlink_active nvlink_count nvlink_speed")


def test_what_is_wrong_is_named() -> None:
    def said(facts: dict[str, object], wanted: Resolved) -> list[str]:
        return [each.actual for each in found(nvlink, Case("", "", facts, wanted)) if each.status.value == "failed"]

    assert said(links(OFF, {}, OFF), dgx()) == ["inactive: 0, 2", "GPU 3: 10; the others 12"]
    assert said(peers("CNS", "GPU2"), dgx()) == ["6 x CNS, first GPU0-GPU2"]
    assert said(matrix("SYS"), dgx()) == ["3 x NV12, 3 x SYS"]

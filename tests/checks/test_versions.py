"""What a job would load, and whether the driver's parts are of one version."""

from typing import Any

from nodectl.checks.stack import versions
from nodectl.facts.gpus import Gpus
from nodectl.facts.kernel import Kernel, Modules
from nodectl.facts.look import Lab
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from tests.checks.gpus import eight
from tests.checks.table import ABSENT, UNREAD, Case, dgx, found, plain, quiet

DRIVER = "580.95.05"
STACK = dgx().stack


def loaded(**changes: Any) -> dict[str, object]:
    values: dict[str, Any] = {
        "torch": f"{STACK.torch}+cu128",
        "cuda": "12.8.90",
        "cudnn": STACK.cudnn,
        "nccl": STACK.nccl,
        "nccl_loaded": STACK.nccl,
        "driver": DRIVER,
        "driver_installed": DRIVER,
        "driver_library": "580.95",
        "driver_flavour": "open",
        "driver_cuda": "13.0",
    }
    return {"versions": Versions("/opt/nodectl/venv", **{**values, **changes}), **eight()}


def not_told(name: str, why: str = "it broke", **changes: Any) -> dict[str, object]:
    return loaded(**{name: None, "unavailable": {name: why}, **changes})


def smi(said: str) -> dict[str, object]:
    return {**loaded(driver=None), "gpus": Unread("unknown", said)}


def modules(*names: str, flavour: str | None = "proprietary") -> dict[str, object]:
    return {**loaded(driver_flavour=flavour), "modules": Modules(names)}


# Windows' driver 546.80 with nvidia-smi 545.46, as users of WSL2 show them, and no module
WSL = {
    **loaded(driver="546.80", driver_library="545.46", driver_flavour=None),
    "modules": Modules(()),
    "kernel": Kernel("Linux", "5.15.146.1-microsoft-standard-WSL2", "x86_64", "ubuntu", "22.04", "Ubuntu 22.04"),
}
SILENT = "couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed"
MISMATCH = "Driver/library version mismatch"
MANAGED = {"nodectl_driver": "manage"}
NOWHERE = Versions("", unavailable={"torch": "venv is not in the recording"})
BOTH = ("nvidia", "nvidia_uvm")
NO_SMI = {**not_told("driver", "nvidia-smi is not installed"), "gpus": ABSENT, "modules": Modules(("ext4",))}
NOTHING = {**NO_SMI, "versions": Versions("/v", unavailable={"driver": "nvidia-smi is not installed"})}
KEPT = {"nodectl_driver": "keep"}
CASES = [
    Case("driver_library", "skipped", WSL, dgx()),
    Case("gpu_modules", "skipped", WSL, dgx()),
    Case("driver_loaded", "ok", WSL, dgx()),
    Case("versions", "ok", loaded(), dgx()),
    Case("versions", "failed", loaded(torch="2.1.2+cu121"), dgx(), subject="torch"),
    Case("versions", "failed", loaded(cuda="12.1.105"), dgx(), subject="cuda"),
    Case("versions", "failed", loaded(nccl="2.18.1"), dgx(), subject="nccl"),
    Case("versions", "failed", loaded(cudnn="8.9.2"), dgx(), subject="cudnn"),
    Case("versions", "nothing", loaded(cudnn=None), dgx(), subject="cudnn"),
    Case("versions", "failed", loaded(driver="470.57.02"), dgx(), subject="driver"),
    Case("versions", "unknown", not_told("driver"), dgx(), subject="driver"),
    Case("versions", "failed", not_told("torch", "no such wheel in the venv"), dgx(), subject="torch"),
    Case("versions", "unknown", not_told("nccl"), dgx(), subject="nccl"),
    Case("versions", "unknown", {"versions": NOWHERE}, dgx(), subject="torch"),
    Case("versions", "nothing", loaded(torch="1.0")),
    Case("driver_loaded", "failed", smi(f"NVIDIA-SMI has failed because it {SILENT}")),
    Case("driver_loaded", "nothing", smi("Unable to do anything"), plain(gpus=0)),
    Case("driver_loaded", "unknown", {**loaded(driver=None), "gpus": UNREAD}, dgx()),
    Case("driver_loaded", "failed", NO_SMI, dgx(), KEPT, action="reboot"),
    Case("driver_loaded", "unknown", NOTHING, dgx()),
    Case("driver_library", "failed", loaded(driver_library="575.57"), action="reboot"),
    Case("driver_library", "failed", smi(f"Failed to initialize NVML: {MISMATCH}"), action="reboot"),
    Case("driver_library", "unknown", not_told("driver_library")),
    Case("driver_pending", "warning", loaded(driver_installed="580.105.08"), action="reboot"),
    Case("driver_pending", "unknown", not_told("driver_installed")),
    Case("driver_pending", "skipped", not_told("driver_installed", "modinfo is not installed")),
    Case("driver_cuda", "ok", loaded(driver_cuda="12.0")),
    Case("driver_cuda", "failed", loaded(driver_cuda="11.4")),
    Case("driver_cuda", "unknown", not_told("driver_cuda")),
    Case("driver_cuda", "nothing", loaded(cuda=None)),
    Case("managed_driver", "ok", loaded(), dgx(), MANAGED, subject="branch"),
    Case("managed_driver", "failed", loaded(driver="575.57.08"), dgx(), MANAGED, subject="branch", action="reboot"),
    Case("managed_driver", "unknown", not_told("driver"), dgx(), MANAGED, subject="branch"),
    Case("managed_driver", "unknown", {"versions": UNREAD}, dgx(), MANAGED),
    Case("managed_driver", "nothing", loaded(driver="575.57.08"), dgx()),
    Case("managed_driver", "nothing", loaded(driver="575.57.08"), dgx(), {"nodectl_driver": "keep"}),
    Case("managed_driver", "nothing", loaded(), plain(), MANAGED),
    Case("gpu_modules", "ok", modules(*BOTH), dgx()),
    Case("gpu_modules", "failed", modules("nvidia"), dgx()),
    Case("gpu_modules", "failed", modules("nouveau", *BOTH), dgx()),
    Case("gpu_modules", "nothing", modules("nvidia")),
    Case("gpu_modules", "nothing", {**modules("nvidia"), "lab": Lab("lab", ("kernel",))}, dgx()),
    Case("gpudirect", "ok", modules(*BOTH, "nvidia_peermem"), dgx()),
    Case("gpudirect", "ok", modules(*BOTH, flavour="open"), dgx()),
    Case("gpudirect", "warning", modules(*BOTH), dgx()),
    Case("gpudirect", "unknown", modules(*BOTH, flavour=None), dgx()),
    Case("gpudirect", "nothing", modules(*BOTH), dgx(nics=[])),
]  # fmt: skip


QUIET = quiet(loaded(), checks="driver_loaded driver_library driver_pending driver_cuda")


def test_a_machine_without_gpus_has_no_driver_to_judge() -> None:
    facts = {"versions": Versions("/v"), "gpus": ABSENT}
    assert found(versions, Case("", "", facts)) == []
    assert found(versions, Case("", "", {"versions": Versions("/v"), "gpus": Gpus(0, ())})) == []


def test_a_driver_that_is_installed_or_kept_is_not_proposed_to_be_provisioned() -> None:
    for facts, variables, remedy in (NOTHING, {}, "provision"), (NOTHING, KEPT, "modprobe"), (NO_SMI, {}, "modprobe"):
        rows = found(versions, Case("versions", "unknown", facts, dgx(), variables))
        assert [remedy in row.remedy for row in rows if row.subject == "driver"] == [True]

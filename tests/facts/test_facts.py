"""Facts from recordings: a value, a refusal, a missing tool and a failed one are told apart."""

from typing import Any

import pytest

from nodectl.common.node_paths import VENV
from nodectl.facts.catalogue import all_facts, commands_for, read_facts
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.kernel import Kernel
from nodectl.facts.look import Lab
from nodectl.facts.network import Nic
from nodectl.facts.processors import Cpu, Memory
from nodectl.facts.services import Clock
from nodectl.facts.storage import Disk
from nodectl.facts.versions import Versions, venv_of
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording

IP = """[{"ifindex":1,"ifname":"lo","operstate":"UNKNOWN","mtu":65536,"address":"00:00:00:00:00:00","addr_info":[]},
{"ifindex":7,"ifname":"eth0","operstate":"UP","mtu":9000,"address":"02:00:00:00:00:01",
"addr_info":[{"local":"192.0.2.4","prefixlen":24}]}]
"""
DF = """Filesystem 1024-blocks Used Available Capacity Mounted on
overlay 10485760 1 8388608 1% /
/dev/sdb 20971520 1 4194304 1% /home
"""
SHM = """Filesystem 1024-blocks Used Available Capacity Mounted on
tmpfs 65536 0 65536 0% /dev/shm
"""
GPUS = """index, name, uuid, pci.bus_id, memory.total [MiB], driver_version
0, NVIDIA H100 80GB HBM3, GPU-1, 00000000:18:00.0, 81559 MiB, 560.35.03
1, NVIDIA H100 80GB HBM3, GPU-2, 00000000:2A:00.0, [N/A], 560.35.03
"""
OUTPUTS = {
    "lscpu": "CPU(s): 8\nSocket(s): 1\nCore(s) per socket: 4\nModel name: Xeon\n"
    "Architecture: x86_64\nNUMA node(s): 2\n",
    "meminfo": "MemTotal: 4194304 kB\nMemAvailable: 3145728 kB\nSwapTotal: 1048576 kB\n",
    "df-shm": SHM,
    "df": "/home/me/.local/state/nodectl\n" + DF,
    "ip-address": IP,
    "nics-sysfs": "lo\tindex=1\neth0\tindex=7\tmac=02:00:00:00:00:01\tspeed=100000\tdriver=mlx5_core\n",
    "uname": "Linux 6.1.0-28-amd64 x86_64\n",
    "os-release": 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12"\n',
    "python3": "Python 3.11.2\n",
    "venv": "venv /opt/v\npython 3.12.1\nwheel torch-2.7.0+cu128\nwheel nvidia_nccl_cu12-2.26.2\ncuda 12.8\n",
    "nvidia-smi-version": "NVIDIA-SMI version  : 560.35.03\nCUDA Version        : 12.6\n",
    "proc-driver-nvidia": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.05  Fri\n",
    "iperf3-version": "iperf 3.12 (cJSON 1.7.15)\n",
    "nvidia-smi-query": GPUS,
    "lab": '{"lab": "lab", "host": "node01", "shared": ["cpu", "clock"]}',
}


def facts(**changes: Any) -> dict[str, Any]:
    """Facts of the host above; a change is other output, an exit status, or None for what was not recorded."""
    entries = {}
    for key, text in {**OUTPUTS, **{key.replace("_", "-"): value for key, value in changes.items()}}.items():
        if text is not None:
            status, out = (text, "") if isinstance(text, int) else (0, text)
            entries[key] = Entry(key, (key,), status, out, "it broke\n" if status else "", 0.01)
    return read_facts(Recording("gpu01", entries, 0.00312, 0.2))


def test_every_value_of_the_first_subjects() -> None:
    found = facts()
    assert found["cpu"] == Cpu("Xeon", "x86_64", 1, 4, 8, 2)
    assert found["memory"] == Memory(4096, 3072, 1024, 64, shm_free_mib=64)
    assert found["nics"] == {
        "eth0": Nic("eth0", "up", 9000, "02:00:00:00:00:01", ("192.0.2.4/24",), 100000, "mlx5_core")
    }
    assert found["kernel"] == Kernel("Linux", "6.1.0-28-amd64", "x86_64", "debian", "12", "Debian GNU/Linux 12")
    assert found["gpus"] == Gpus(
        2,
        (
            Gpu("0000:18:00.0", "GPU-1", "NVIDIA H100 80GB HBM3", memory_total_mib=81559, index=0),
            Gpu("0000:2A:00.0", "GPU-2", "NVIDIA H100 80GB HBM3", index=1, unavailable={"memory.total": "[N/A]"}),
        ),
        driver_version="560.35.03",
    )
    assert found["disk"] == Disk(
        10240, 8192, "/home/me/.local/state/nodectl", 4096, root_used_percent=1, state_used_percent=1
    )
    assert found["time"] == Clock(0.0031, 0.2)
    assert found["lab"] == Lab("lab", ("cpu", "clock"))


def test_every_version() -> None:
    said = {
        "venv": OUTPUTS["venv"] + "wheel nvidia_cudnn_cu12-9.7.1.26\nwheel deepspeed-0.16.4\nnccl_loaded 2.26.2\n",
        "nvidia_smi_version": "NVIDIA-SMI version  : 560.35.03\nNVML version        : 560.35\nCUDA Version : 12.6\n",
        "driver_installed": "560.35.05\n",
    }
    assert facts(**said)["versions"] == Versions(
        venv="/opt/v",
        python3="3.11.2",
        venv_python="3.12.1",
        torch="2.7.0+cu128",
        cuda="12.8",
        cudnn="9.7.1.26",
        nccl="2.26.2",
        nccl_loaded="2.26.2",
        deepspeed="0.16.4",
        driver="560.35.05",
        driver_installed="560.35.05",
        driver_library="560.35",
        driver_flavour="proprietary",
        driver_cuda="12.6",
        iperf3="3.12",
    )
    module = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.10.02  Release Build\n"
    found = facts(proc_driver_nvidia=module)["versions"]
    assert (found.driver, found.driver_flavour) == ("570.10.02", "open")


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (127, "absent", "nvidia-smi-query is not installed"),
        (124, "unknown", "nvidia-smi-query did not end in time"),
        (9, "unknown", "nvidia-smi-query: exit status 9: it broke"),
        (None, "unknown", "nvidia-smi-q is not in the recording"),
    ],
)
def test_gpus_that_cannot_be_counted_are_not_zero(status: int | None, kind: str, reason: str) -> None:
    found = facts(nvidia_smi_query=status)["gpus"]
    assert isinstance(found, Unread)
    assert (found.kind, found.reason, found.hung) == (kind, reason, status == 124)


def test_the_reason_of_a_failed_call_is_quoted() -> None:
    mismatch, link = "Failed to initialize NVML: Driver/library version mismatch", "NVML: Unable to translate link 12"
    for stdout, reason in (f"{mismatch}\nNVML library version: 535.86\n", mismatch), (f"GPU 0: A100\n{link}\n", link):
        entry = Entry("nvidia-smi-nvlink", ("nvidia-smi",), 2, stdout, "", 0.1)
        found = read_facts(Recording("gpu01", {entry.key: entry}))["nvlink"]
        assert isinstance(found, Unread) and found.reason == f"nvidia-smi: exit status 2: {reason}"


def test_no_gpu_is_a_number_where_the_driver_answers() -> None:
    entry = Entry("nvidia-smi-query", ("nvidia-smi",), 6, "No devices were found\n", "", 0.1)
    assert read_facts(Recording("gpu01", {"nvidia-smi-query": entry}))["gpus"] == Gpus(0, (), confirmed=True)


def test_versions_say_why_there_is_none() -> None:
    cpu_only = facts(venv="venv /opt/v\npython 3.12.1\nwheel torch-2.7.0+cpu\ncuda None\n", nvidia_smi_version=127)
    found = cpu_only["versions"]
    assert (found.torch, found.cuda, found.nccl, found.driver_cuda) == ("2.7.0+cpu", None, None, None)
    assert {name: found.unavailable[name] for name in ("cuda", "nccl", "driver_cuda", "driver_installed")} == {
        "cuda": "torch is built without CUDA",
        "nccl": "no such wheel in the venv",
        "driver_cuda": "nvidia-smi-version is not installed",
        "driver_installed": "driver-installed is not in the recording",
    }
    nothing = facts(venv="venv /opt/v\n")["versions"]
    assert {nothing.unavailable[name] for name in ("torch", "cuda", "nccl")} == {"no venv in /opt/v"}


def test_an_interface_of_another_namespace_lends_no_speed() -> None:
    nics = facts(nics_sysfs="eth0\tindex=2\tmac=02:00:00:00:00:01\tspeed=25000\tdriver=ice\n")["nics"]
    assert (nics["eth0"].speed_mbit, nics["eth0"].driver) == (None, None)
    down = facts(nics_sysfs="eth0\tindex=7\tmac=02:00:00:00:00:01\tspeed=-1\tdriver=ice\n")["nics"]
    assert (down["eth0"].speed_mbit, down["eth0"].driver) == (None, "ice")


def test_what_is_garbled_is_unknown() -> None:
    found = facts(lscpu="CPU(s): many\n", df="/state\ndf: broken\n", lab="{", uname="Linux")
    for subject in ("cpu", "disk", "lab", "kernel"):
        assert found[subject].kind == "unknown" and "not in the recording" not in found[subject].reason


def test_commands_are_asked_once_and_for_the_hosts_own_venv() -> None:
    commands = commands_for(Host("gpu01", "192.0.2.4", variables={"pytorch_venv": "/data/my venv"}))
    assert len({command.key for command in commands}) == len(commands)
    assert ["/data/my venv" in command.argv for command in commands].count(True) == 1
    assert {"gpus", "versions"} <= {fact.subject for fact in all_facts()}


@pytest.mark.parametrize("value", [None, "", "{{ base }}/venv", 3])
def test_a_venv_that_only_ansible_can_tell_is_the_roles_default(value: object) -> None:
    assert venv_of(Host("gpu01", "192.0.2.4", variables={"pytorch_venv": value})) == VENV

"""NUMA, memory errors, kernel, units, Slurm, processes, ports, mounts, libraries: values, absence and garbage."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl.facts.catalogue import all_facts, commands_for, facts_named, read_facts
from nodectl.facts.kernel import Boot, KernelKnobs, Modules
from nodectl.facts.network import Listening
from nodectl.facts.processes import Process, Processes
from nodectl.facts.processors import MemoryController, MemoryErrors, NumaNode
from nodectl.facts.services import SlurmNode, Unit, Units
from nodectl.facts.settings import UnitLimits
from nodectl.facts.storage import Mount, Mounts
from nodectl.facts.versions import VERSIONS_FACT as VERSIONS
from nodectl.facts.versions import Libraries, Library
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording
from tests.facts.parsers.tool_outputs import recorded_text
from tests.facts.recorded import fact

HOST = Host("n1", "192.0.2.1")
NUMA = """\
node0/cpulist:0-3,8-11
node0/meminfo:Node 0 MemTotal:        2097152 kB
node0/meminfo:Node 0 MemFree:         1048576 kB
node1/cpulist:
"""
KNOBS = recorded_text("system-facts-knobs.txt")
UNITS = recorded_text("system-facts-units.txt")
SLURM = (
    "NodeName=gpu01 Arch=x86_64 CPUTot=256 Gres=gpu:a100:8 OS=Linux RealMemory=2048000 State=IDLE*+DRAIN "
    "Version=23.11.10 Reason=NHC: two words [root@2026-11-20T10:00:00]\n"
)
PROCESSES = """\
load 0.42 3.37 1.31 1/900 4242
process D     77 nfs_wait_bit_killable cp my file
process Zs   901 -  python3
process D<    78 -  jbd2/sda1-8
count 812
"""
CASES: list[tuple[str, str, Any, object]] = [
    ("boot", "boot", "5c1c0a6e-3b0a\n1296042.31 3.2\n", Boot("5c1c0a6e-3b0a", 1296042.31)),
    (
        "modules",
        "modules",
        "nvidia_uvm 4096 2 - Live 0x0\nib-core 1 0 - Live 0x0\n",
        Modules(("ib_core", "nvidia_uvm")),
    ),
    (
        "memory_errors",
        "memory-errors",
        "mc0\tcorrected=3\tuncorrected=0\tsize_mib=65536\tkind=F17h\n",
        MemoryErrors((MemoryController("mc0", 3, 0, "F17h", 65536),)),
    ),
    (
        "unit_limits",
        "unit-limits",
        "DefaultLimitMEMLOCKSoft=infinity\nDefaultLimitNOFILESoft=1024\nRemoveIPC=b true\n",
        UnitLimits("infinity", "1024", None, True),
    ),
    (
        "units",
        "units",
        UNITS,
        Units(
            "degraded",
            {
                "nvidia-persistenced": Unit("nvidia-persistenced", "loaded", "active", "running", "enabled", "success"),
                "slurmd": Unit("slurmd", "not-found", "inactive", "dead", "", "success"),
            },
            ("nfs-mountd.service", "my-job@3.service"),
        ),
    ),
    (
        "slurm",
        "slurm-node",
        SLURM,
        SlurmNode(
            "gpu01",
            ("IDLE", "DRAIN"),
            False,
            "NHC: two words [root@2026-11-20T10:00:00]",
            256,
            2048000,
            "gpu:a100:8",
            "23.11.10",
        ),
    ),
    (
        "processes",
        "processes",
        PROCESSES,
        Processes(0.42, 3.37, (Process(77, "cp my file", "nfs_wait_bit_killable"), Process(78, "jbd2/sda1-8")), 812),
    ),
    (
        "listening",
        "listening",
        "LISTEN 0 128 0.0.0.0:22 0.0.0.0:*\nLISTEN 0 128 [::]:22 [::]:*\nLISTEN 0 5 127.0.0.1:28028 0.0.0.0:*\n",
        Listening({22: ("0.0.0.0", "[::]"), 28028: ("127.0.0.1",)}),  # noqa: S104 - what ss prints
    ),
    (
        "mounts",
        "mounts",
        "nas:/a\\040b /mnt/a\\040b nfs4 rw,hard 0 0\n",
        Mounts((Mount("/mnt/a b", "nas:/a b", "nfs4", ("rw", "hard")),)),
    ),
    (
        "libraries",
        "loaded-libraries",
        "/lib/libnccl.so.2\t/lib/libnccl.so.2.27.5\n/lib/libcuda.so.1\t/lib/libcuda.so.1\n",
        Libraries(
            (Library("libnccl.so.2", "/lib/libnccl.so.2", "2.27.5"), Library("libcuda.so.1", "/lib/libcuda.so.1"))
        ),
    ),
    (
        "kernel_knobs",
        "kernel-knobs",
        KNOBS,
        KernelKnobs(
            "ro iommu=pt quiet",
            "madvise",
            "never",
            {"performance": 7, "powersave": 1},
            "acpi-cpufreq",
            1,
            "on",
            iommu_groups=0,
            taint=4096,
        ),
    ),
]


@pytest.mark.parametrize(("subject", "key", "text", "value"), CASES, ids=[case[0] for case in CASES])
def test_each_subject(subject: str, key: str, text: str, value: object) -> None:
    assert fact(subject, **{key: text}) == value


@pytest.mark.parametrize(
    ("subject", "key", "text"),
    [
        ("numa", "numa", "node0 cpus 0-3\n"),
        ("numa", "numa", ""),
        ("boot", "boot", "5c1c0a6e\n"),
        ("modules", "modules", "nvidia_uvm 4096 2 - Live 0x0\nnvid\n"),
        ("memory_errors", "memory-errors", "mc0\tcorrected=some\tuncorrected=0\n"),
        ("kernel_knobs", "kernel-knobs", "governor\tperformance\n"),
        ("kernel_knobs", "kernel-knobs", ""),
        ("units", "units", "what is this\n"),
        ("units", "units", ""),
        ("unit_limits", "unit-limits", "RemoveIPC=b true\n"),
        ("slurm", "slurm-node", "slurm_load_node error: Unable to contact slurm controller\n"),
        ("processes", "processes", "load 1\ncount 3\n"),
        ("processes", "processes", "load 1 2 3 1/1 1\nprocess D\n"),
        ("listening", "listening", "LISTEN 0 128 nowhere\n"),
        ("mounts", "mounts", "tmpfs /run\n"),
        ("libraries", "loaded-libraries", "/lib/libnccl.so.2\n"),
    ],
)
def test_what_is_garbled_is_unknown(subject: str, key: str, text: str) -> None:
    found = fact(subject, **{key: text})
    assert isinstance(found, Unread) and found.kind == "unknown"


@pytest.mark.parametrize(
    ("subject", "key", "reason"),
    [
        ("numa", "numa", "the kernel knows no NUMA nodes"),
        ("memory_errors", "memory-errors", "the kernel has no EDAC driver for this memory"),
        ("units", "units", "no systemd runs there"),
        ("unit_limits", "unit-limits", "no systemd runs there"),
    ],
)
def test_what_a_host_does_not_have_is_absent(subject: str, key: str, reason: str) -> None:
    assert fact(subject, **{key: 3}) == Unread("absent", reason)


def test_units_of_a_folder_without_an_index() -> None:
    entry = Entry("units", (), 0, UNITS, "", 0.0)
    assert read_facts(Recording("n1", {"units": entry}), facts_named("units"))["units"] == fact("units", units=UNITS)


def test_numa_nodes() -> None:
    nodes = fact("numa", numa=NUMA).nodes
    assert nodes == (NumaNode(0, "0-3,8-11", 2048, 1024), NumaNode(1, "", None, None))


def test_inodes_of_the_file_systems() -> None:
    df = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/a 1048576 1 524288 50% /\n"
    df += "/dev/b 2097152 1 1048576 50% /home\n"
    inodes = "Filesystem Inodes IUsed IFree IUse% Mounted on\n/dev/a 1000 950 50 95% /\nbtrfs 0 0 0 - /home\n"
    disk = fact("disk", df=f"/home/me/nodectl\n{df}{inodes}")
    assert (disk.root_free_mib, disk.state_free_mib) == (512, 1024)
    assert (disk.root_inodes_used_percent, disk.state_inodes_used_percent) == (95, None)


@pytest.mark.parametrize("key", ["numa", "kernel-knobs", "processes", "listening", "mounts", "df", "loaded-libraries"])
def test_this_machine_is_read_by_the_real_command(key: str) -> None:
    command = next(each for each in commands_for(HOST) if each.key == key)
    # as the collector does
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command.argv, capture_output=True, text=True, check=False, env=env)
    subject = next(each.subject for each in all_facts() if any(own.key == key for own in each.commands_on(HOST)))
    found = fact(subject, **{key: (done.returncode, done.stdout, done.stderr)})
    # a machine may have none of it; what it has must be read
    assert not isinstance(found, Unread) or found.kind == "absent", found


def test_the_environment_is_read_from_its_files(tmp_path: Path) -> None:
    packages = tmp_path / "lib/python3.12/site-packages"
    for name in ("torch-2.9.1+cu128", "nvidia_nccl_cu12-2.27.5", "nvidia_cudnn_cu12-9.10.2.21", "numpy-2.2.6"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (packages / "torch").mkdir()
    (packages / "torch/version.py").write_text("cuda: Optional[str] = '12.8'\n")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
    library = packages / "nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to("/usr/bin/python3")
    host = Host("n1", "192.0.2.1", variables={"pytorch_venv": str(tmp_path)})
    (command,) = [each for each in VERSIONS.commands_on(host) if each.key == "venv"]
    done = subprocess.run(command.argv, capture_output=True, text=True, check=True)
    found = fact("versions", venv=done.stdout)
    assert (found.venv_python, found.torch, found.cuda) == ("3.12.3", "2.9.1+cu128", "12.8")
    assert (found.nccl, found.cudnn, found.nccl_loaded) == ("2.27.5", "9.10.2.21", None)
    assert found.unavailable["nccl_loaded"] == "no library of NCCL there could be loaded"

"""Writes the bundled recordings, or compares them with what it would write.

usage: scripts/recordings.py [--check]      --check writes nothing, and exits with 1 where one is stale
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from recording_texts import gpu_query, gpu_tools, ib_sysfs, kernel, network, nics, pci, system
from recording_texts.machines import DRIVER, HOST, STACK, TUNING, Machine
from recording_texts.three import MACHINES

from nodectl.facts.catalogue import commands_for
from nodectl.facts.units import UNITS
from nodectl.model.host import Host
from nodectl.model.recording import Command

FOLDER = Path(__file__).resolve().parents[1] / "nodectl" / "data" / "recordings"
_TIME = "2026-10-12T08:00:03Z"
_MISSING, _ABSENT = 127, 3


@dataclass(frozen=True, slots=True)
class Output:
    """What a command printed, and how it ended."""

    stdout: str = ""
    exit_status: int = 0
    stderr: str = ""


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = [machine.name for machine in MACHINES if not _settle(machine, check=options.check)]
    if stale:
        sys.exit(f"stale: {', '.join(stale)}; run `scripts/recordings.py`")


def _settle(machine: Machine, *, check: bool) -> bool:
    folder, files = FOLDER / machine.name, dict(_files(machine))
    found = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()
    }
    if found == files:
        return True
    if check:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"{machine.name}: {len(files)} files, {sum(map(len, files.values())) // 1024} KiB")
    return True


def _files(machine: Machine) -> Iterator[tuple[str, str]]:
    about = {
        "schema": "nodectl.recording/1",
        "name": machine.name,
        "made": "hand-written",
        "hardware": machine.hardware,
        "stack": STACK,
        "tuning": TUNING,
        "from": machine.description,
    }
    yield "recording.yml", yaml.safe_dump(about, sort_keys=False, width=110)
    commands = _commands()
    outputs = _outputs(machine, commands)
    index = []
    for key in sorted(outputs):
        output, command = outputs[key], commands.get(key)
        yield f"{HOST}/{key}.out", output.stdout
        if output.stderr:
            yield f"{HOST}/{key}.err", output.stderr
        if command:
            entry = {"key": key, "argv": list(command.argv), "exit_status": output.exit_status}
            index.append(entry | {"duration_s": 0.02, "time": _TIME})
    yield f"{HOST}/index.json", json.dumps(index, indent=1) + "\n"


def _commands() -> dict[str, Command]:
    """What `nodectl record` asks of a host."""
    return {command.key: command for command in commands_for(Host(HOST, HOST))}


def _outputs(machine: Machine, commands: Mapping[str, Command]) -> dict[str, Output]:
    """Every command's output; a key that nobody wrote is an error here, not a hole in the recording."""
    texts = {**_gpu(machine, commands), **_fabric(machine), **_system(machine, commands)}
    missing = sorted(set(commands) - set(texts))
    if missing:
        sys.exit(f"scripts/recordings.py writes nothing for {', '.join(missing)}")
    told = {key: each if isinstance(each, Output) else Output(each) for key, each in texts.items()}
    return {key: told[key] for key in sorted({*commands, "clock"}) if key in told}


def _gpu(machine: Machine, commands: Mapping[str, Command]) -> dict[str, str | Output]:
    columns = commands["nvidia-smi-query"].argv[1].partition("=")[2]
    no_links = Output("")
    manager = gpu_tools.fabric_manager() if machine.nvswitches else Output("", _MISSING)
    return {
        "nvidia-smi-q": gpu_query.nvidia_smi_q(machine),
        "nvidia-smi-query": gpu_tools.nvidia_smi_query(machine, columns),
        "nvidia-smi-list": gpu_tools.nvidia_smi_list(machine),
        "nvidia-smi-version": gpu_tools.nvidia_smi_version(),
        "nvidia-smi-topo": gpu_tools.nvidia_smi_topo(machine),
        "nvidia-smi-p2p": gpu_tools.nvidia_smi_p2p(machine),
        "nvidia-smi-nvlink": gpu_tools.nvidia_smi_nvlink(machine) if machine.gpu.nvlinks else no_links,
        "nvidia-smi-nvlink-errors": gpu_tools.nvidia_smi_nvlink_errors(machine) if machine.gpu.nvlinks else no_links,
        "driver-installed": f"{DRIVER}\n",
        "proc-driver-nvidia": gpu_tools.proc_driver_nvidia(),
        "fabric-manager": manager,
    }


def _fabric(machine: Machine) -> dict[str, str | Output]:
    lspci = pci.lspci(machine)
    texts: dict[str, str | Output] = {"lspci-acs": lspci, "pci-tree": kernel.pci_tree(machine, lspci)}
    if not machine.rdma:
        tools = ("ibstat", "ibv-devinfo", "show-gids")
        return {
            **texts,
            "ib-sysfs": Output("", _ABSENT),
            "rdma-link": "",
            **{key: Output("", _MISSING) for key in tools},
        }
    return {
        **texts,
        "ib-sysfs": ib_sysfs.ib_sysfs(machine),
        "ibstat": network.ibstat(machine),
        "ibv-devinfo": network.ibv_devinfo(machine),
        "rdma-link": network.rdma_link(machine),
        "show-gids": network.show_gids(machine),
    }


def _no_file(path: str) -> Output:
    return Output("", 1, f"cat: {path}: No such file or directory\n")


def _system(machine: Machine, commands: Mapping[str, Command]) -> dict[str, str | Output]:
    return {
        "lscpu": kernel.lscpu(machine),
        "numa": kernel.numa(machine),
        "meminfo": kernel.meminfo(machine),
        "memory-errors": kernel.memory_errors(machine),
        "kernel-knobs": kernel.knobs(machine),
        "modules": kernel.modules(machine),
        "boot": kernel.boot(),
        "dmesg": kernel.dmesg(machine),
        "cpuinfo-flags": "flags\t\t: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov avx avx2\n",
        "ip-address": nics.ip_address(machine),
        "nics-sysfs": nics.nics_sysfs(machine),
        "uname": system.uname(),
        "os-release": system.os_release(),
        "python3": "Python 3.10.12\n",
        "venv": system.venv(),
        "iperf3-version": "iperf 3.9 (cJSON 1.7.13)\n",
        "loaded-libraries": system.libraries(),
        **system.file_systems(machine),
        "units": system.units(machine, UNITS),
        "sysctl": system.sysctl(commands["sysctl"].argv[4:]),
        "unit-limits": system.unit_limits(),
        "session-limits": system.session_limits(),
        "slurm-node": system.slurm_node(machine) if machine.nvswitches else Output("", _MISSING),
        "processes": system.processes(),
        "listening": system.listening(),
        "clock-sync": "chrony Normal\n",
        "clock": json.dumps({"offset_s": 0.0003, "error_s": 0.02}) + "\n",
        "nccl-conf": _no_file("/etc/nccl.conf"),
        "nccl-conf-user": _no_file("/root/.nccl.conf"),
        "lab": _no_file("/etc/nodectl-lab"),
    }


if __name__ == "__main__":
    main()

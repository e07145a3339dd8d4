"""What a parallel shell, a job runner, a log or a paste puts around an output changes nothing of what it says."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, parser_of

OUTPUTS = {
    "compute-apps": "pid, process_name, used_gpu_memory [MiB]\n71, python3, 812 MiB\n",
    "ibstat": "CA 'mlx5_3'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tRate: 400\n\t\tBase lid: 71\n",
    "ibstatus": "Infiniband device 'mlx5_3' port 1 status:\n\tbase lid:\t 0x47\n\tstate:\t\t 4: ACTIVE\n",
    "ibv-devinfo": "hca_id:\tmlx5_3\n\ttransport:\t\tInfiniBand (0)\n\tfw_ver:\t\t28.39.2048\n",
    "iperf3": '{\n  "start" : {\n    "version" : "iperf 3.12",\n    "connected" : []\n  }\n}\n',
    "lspci-acs": "71:00.0 3D controller: NVIDIA GH100\n\tControl: I/O-\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n",
    "nccl-tests": (
        "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        "        1024           256     float     sum      -1    71.20    0.01    0.03      0\n"
        "# Avg bus bandwidth    : 0.03\n"
    ),
    "nvidia-smi-list": (
        "GPU 0: NVIDIA H100 (UUID: GPU-71)\nGPU 1: NVIDIA H100 (UUID: GPU-72)\nGPU 2: NVIDIA H100 (UUID: GPU-73)\n"
    ),
    "nvidia-smi-q": (
        "==============NVSMI LOG==============\n\nAttached GPUs : 1\n"
        "GPU 00000000:71:00.0\n    Product Name : NVIDIA H100\n"
        "    MIG Mode\n        Current : Disabled\n"
    ),
    "nvidia-smi-topo": "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-7\nGPU1\tNV18\t X \t8-15\n",
    "perftest": (
        "                    RDMA_Write BW Test\n Mtu             : 4096[B]\n"
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
        " 65536      5000             0.00               371.20             0.708008\n"
    ),
    "rdma-link": (
        "link mlx5_3/1 state ACTIVE physical_state LINK_UP netdev ens7\n"
        "link mlx5_4/1 state DOWN physical_state POLLING\n"
    ),
    "show-gids": "DEV\tPORT\tINDEX\tGID\t\tIPv4\tVER\tDEV\nmlx5_3\t1\t0\tfe80:0:0:0\n".replace(
        "fe80:0:0:0", "fe80:0000:0000:0000:71fd:fe00:0071:0001\t\tv2\tens7"
    ),
}


def each_line(before: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{before}{line}\n" for line in text.splitlines())


AROUND: dict[str, Callable[[str], str]] = {
    "mark": lambda text: f"\ufeff{text}",
    "pdsh": each_line("gpu-071: "),
    "srun": each_line("3: "),
    "mpirun": each_line("[1,3]<stdout>:"),
    "runner": each_line("2031-07-01T10:20:30.7654321Z "),
    "quoted": each_line("> "),
    "compose": each_line("worker-3  | "),
    "indented": each_line("    "),
    "twice": lambda text: each_line("gpu-071: ")(each_line("[1,3]<stdout>:")(text)),
}


# each tool in one wrapping, each wrapping around a tool or two: both are independent of one another
@pytest.mark.parametrize(("tool", "around"), list(zip(OUTPUTS, cycle(AROUND))))
def test_what_stands_before_every_line_changes_nothing(tool: str, around: str) -> None:
    parse = parser_of(tool)
    assert as_document(parse(AROUND[around](OUTPUTS[tool]))) == as_document(parse(OUTPUTS[tool]))


def test_a_log_line_within_json_changes_nothing() -> None:
    lines = OUTPUTS["iperf3"].splitlines()
    torn = "\n".join([*lines[:3], "2031-07-01 10:20:30,123 - INFO - alive", "[10:20:31] WARNING: late", *lines[3:]])
    assert parser_of("iperf3")(torn) == parser_of("iperf3")(OUTPUTS["iperf3"])


def test_two_hosts_in_one_text_are_not_one_output() -> None:
    one, two = each_line("gpu-071: ")(OUTPUTS["ibstat"]), each_line("gpu-072: ")(OUTPUTS["ibstat"])
    with pytest.raises(ParseError, match="no adapter"):
        parser_of("ibstat")(one + two)


def test_a_fence_ends_a_table() -> None:
    found = as_document(parser_of("compute-apps")(f"Here it is:\n```\n{OUTPUTS['compute-apps']}```\nthanks, all\n"))
    assert found["processes"] == [{"pid": 71, "process_name": "python3", "used_gpu_memory": 812}]

"""Texts that no parser may read: each is refused with its line and the reason."""

import json

import pytest

from nodectl.errors import ParseError
from tests.facts.parsers.tool_outputs import PARSERS, tool_output

DIAG = tool_output("dcgmi-diag", "table-3.txt")
LEAF, SPINE, HOST = "2c5eab0300b87b40", "2c5eab0300c26280", "e09d7303007a4bd8"
LEAF_BLOCK = "".join(tool_output("ibnetdiscover", "aggregation-node.txt").splitlines(keepends=True)[5:14])
IBSTAT = tool_output("ibstat", "infiniband-and-ethernet.txt")
DEVINFO = tool_output("ibv-devinfo", "inbox.txt")
DEVINFO_HEAD, DEVINFO_PORT = DEVINFO[: DEVINFO.index("\t\tport:")], DEVINFO[DEVINFO.index("\t\tport:") :]
IPERF3 = tool_output("iperf3", "forward.txt").splitlines(keepends=True)
GPU = "00:05.0 3D controller: NVIDIA Corporation X\n\tControl: I/O-\n"
WHO = "node-a:41001:41023 [0] "
HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
ROW = "1024 256 float sum -1 37.89 0.03 0.05 0 35.31 0.04 0.06 0\n"
TABLE = """Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""


BANDWIDTH = tool_output("nvbandwidth", "latency-and-waived.txt")
LOCAL_COPY = (
    "Running device_local_copy.\nmemcpy local GPU(column) bandwidth (GB/s)\n           0         1\n 0   1500.10\n"
)
SMI = tool_output("nvidia-smi", "two.txt")
SMI_TABLE = tool_output("nvidia-smi", "shared-memory.txt").splitlines(keepends=True)
SMI_HEAD, SMI_ROWS = "".join(SMI_TABLE[:6]), "".join(SMI_TABLE[6:8])
LINKS = tool_output("nvidia-smi-nvlink", "status-with-gaps.txt")
LINK_ERRORS = tool_output("nvidia-smi-nvlink", "errors-with-gaps.txt")
P2P = tool_output("nvidia-smi-p2p", "refused.txt")
SHORT = tool_output("nvidia-smi-q", "short.txt")
XML = tool_output("nvidia-smi-q", "two-xml.txt")
TOPO = tool_output("nvidia-smi-topo", "nics.txt")
TOPO_APART = tool_output("nvidia-smi-topo", "cells-apart.txt")
HEADER_GBIT = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
HEADER_LAT = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] \n"
)
OURS = "torch.distributed.elastic: started\n"
SUMMARY = tool_output("torchrun-log", "summary.txt")

REFUSED = {
    "dcgmi-diag": [
        ("Error: unable to establish a connection to the specified host: localhost\n", "unable to establish"),
        (DIAG[: DIAG.index("Fail ")], "line 10.*cut"),
        (DIAG.replace("Pass  ", "Pale  ", 1), "line 9.*'Pale' does not begin with"),
        (json.dumps({"DCGM Diagnostic": {"test_categories": [3]}}), "'3' is no object"),
    ],
    "dmesg": [
        ("dmesg: read kernel buffer failed: Operation not permitted\n", "read kernel buffer failed"),
        ("-- No entries --\n", "No entries"),
        ("No journal files were opened due to insufficient permissions.\n", "insufficient permissions"),
        ("one two three\nfour\n", "line 1: 'one two three': no line of a kernel log"),
    ],
    "ibdev2netdev": [
        ("mlx5_0 port 1 ==> ib", "line 1.*cut"),
        ("mlx5_0 port 1 ==> ib0 (Up)\nmlx5_1 port 1 <==", "line 2.*cut"),
        ("0000:0c:00.0 mlx5_0 (MT4123 - M) CX fw 20.35 port 1 (ACTIVE) ==> ib0 (U", "line 1.*cut"),
    ],
    "ibnetdiscover": [
        ("src/ibnetdisc.c:803; can't open MAD port ((null):0)", "can't open MAD port"),
        ('[1]\t"H-1"[1](1) # "x" lid 1 4xNDR', "line 1.*missing"),
        (f'Switch\t65 "H-{LEAF}"', "line 1.*is no 'H'"),
        (LEAF_BLOCK + f'[2]\t"S-{SPINE}"[3]\t\t# "spine" lid 4 4xN', "line 10.*speed 'N' is cut"),
        (LEAF_BLOCK + f'[2]\t"S-{HOST}"[3]\t\t# "x" lid 4 4xNDR', "line 10.*both"),
    ],
    "ibstat": [
        ("ibpanic: [7] main: can't init UMAD library", "can't init UMAD library"),
        (IBSTAT + "CA 'mlx5_2'\n\tPort 1:\n\t\tSta", "line 3[0-9]: .*Sta.*cut"),
        (IBSTAT.replace("Rate: 400", "Rate: 4x0"), "line 11.*4x0"),
        (IBSTAT.replace("State: Active", "State: Act"), "line 9.*cut"),
        (IBSTAT.replace("0x946dae0300cde72e", "0x946dae03"), "line 16.*16 digits"),
    ],
    "ibv-devinfo": [
        ("No IB devices found\n", "No IB devices found"),
        (DEVINFO_HEAD + DEVINFO_PORT.replace("PORT_ACTIVE (4)", "PORT_ACT"), "line 12.*brackets"),
        (DEVINFO_HEAD + DEVINFO_PORT.replace("4096 (5)", "4o96 (5)"), "line 13.*4o96"),
        (DEVINFO_HEAD.replace("946d:ae03:00cd:e72c", "946d:ae03"), "line 4.*16 digits"),
        (DEVINFO_HEAD + DEVINFO_PORT + "\t\tport:\t2\n\t\t\tmax_m", "max_m.*cut"),
    ],
    "iperf3": [
        ('{"end": {"sum_received": {"bits_per_second": "fast"}}}', "'bits_per_second' is 'fast'"),
        ('{"error": "x", "start": {"test_start": {"num_streams": 1.5}}}', "whole number"),
        ('{"end": {"sum_received": {"bits_per_second": 1e999}}}', "'bits_per_second' is 'inf'"),
        ('{"end": ' + "[" * 100_000, "line 1"),
        ('{"other": 1}', "line 1: .*no JSON document of this tool"),
        ("".join(IPERF3[: len(IPERF3) // 2]), f"line {len(IPERF3) // 2}: "),
    ],
    "lldpctl": [
        ("", "empty"),
        ('{"lldp": {"interface": [', "not JSON"),
        ('{"lldp": {"interface": [3]}}', "no 'lldp' with its interfaces"),
        ('{"lldp": {"interface": {"eth0": {}}}}', "eth0"),
    ],
    "lspci-acs": [
        ("00:00.0 Host bridge: Intel\n00:01.0 PCI bridge: Intel\n", "lspci -vvv"),
        (f"{GPU}\t\tLnkSta:\tSpeed 8GT/s, Wid\n", "line 3: .*a link without its speed and width"),
        (f"{GPU}\t\tACSCtl:\tSrcValid+ TransBl\n", "line 3: .*ACS flags that are cut"),
    ],
    "nccl-log": [
        ("epoch 1 loss 2.3\n", "line 1: 'epoch 1 loss 2.3': no line of NCCL's"),
        (f"{WHO}NCCL INFO AllReduce: 8388608 Bytes -> Algo RI", "line 1: .*cut"),
        (f"{WHO}NCCL INFO AllReduce: 8388608 Bytes -> Algo 9 proto 1 time 1", "no name is known for number 9"),
    ],
    "nccl-tests": [
        ("bash: all_reduce_perf: command not found\n", "it did not run: bash: all_reduce_perf: command not found"),
        (
            "node: Test CUDA failure common.cu:892 'no CUDA-capable device is detected'\n",
            "failed before it began: .*no CUDA-capable",
        ),
        (HEADER + ROW.replace(" 35.31 0.04 0.06 0", ""), "line 2: .*a row that is cut"),
        (HEADER + ROW.replace("0.03", "0.x3"), "line 2: .*'0.x3' is no value of algbw"),
        ("#  Rank  0 Group  0 Pid  9822 on node-a dev", "line 1: .*a rank without"),
        (HEADER + ROW + "# Out of bounds values : 0", "line 3: .*a summary that is cut"),
        *(
            (f"{HEADER[:-1]} timestamp\n{ROW[:-1]} {cut}\n", "line 2.*cut")
            for cut in ("2026-03-04", "05:06:07", "", "7")
        ),
    ],
    "ncclras": [
        (
            "Connecting to localhost:28028: Connection refused\nFailed to connect to the NCCL RAS service!\n",
            "got no answer: Connecting",
        ),
        (f"{TABLE}    0         8         4 ", "line 3: .*cut"),
        (f"{TABLE}    0  1  4  8  32  32  RUNNING  MISMATCH\n#0-0 (27a0", "line 4: .*a communicator that is cut"),
        (f"{TABLE}    0  1  4  8  32  32  RUNNING  OK\n  Process 34 on no", "line 4: .*a process or rank that is cut"),
    ],
    "nvbandwidth": [
        (BANDWIDTH + LOCAL_COPY, "line 39.*1 value under 2"),
        (BANDWIDTH.replace("54.25", "54,25"), "line 13.*'54,25' is no number"),
    ],
    "nvidia-smi": [
        (SMI[: SMI.index("/  81559MiB")], "line 10.*the row of a GPU is cut"),
        (f"{SMI_HEAD}|   0  A new form of GPU | something | else |\n", "line 7.*the row of a GPU is cut"),
        (
            f"{SMI_HEAD}|                                         |                        |                  N/A |\n",
            "line 7.*the row of a GPU is cut",
        ),
        (f"{SMI_HEAD}{SMI_ROWS}|   1  N\ufffd\ufffd|@@ 0000\n{SMI_TABLE[7]}", "row of a GPU is cut or garbled"),
        (SMI_HEAD + SMI_TABLE[7], "line 7.*the row of a GPU is cut"),
    ],
    "nvidia-smi-nvlink": [
        ("Link 0: 25 GB/s\n", "line 1"),
        (LINKS[: LINKS.index(" GB/s\n\t Link 1")], "line 2.*'.*25'"),
        (LINK_ERRORS.replace("Errors: 3", "Errors: 3e"), "line 4.*no number"),
    ],
    "nvidia-smi-p2p": [
        ("Failed to initialize NVML: Driver/library version mismatch\n", "version mismatch"),
        (P2P.replace("CNS", "NV12"), "line 3.*'NV12' under GPU2"),
    ],
    "nvidia-smi-q": [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "couldn't communicate"),
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error\n", "GPU0000:25:00.0"),
        (SHORT.replace("0f:00.0", "0f:0"), "line 5: .*no PCI address"),
        (XML[: XML.index("920 MiB")], "line 9.*cut"),
        (XML.replace("00000000:0F:00.0", "0F"), "line 6.*PCI address"),
        (
            '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<nvidia_smi_log><gpu id="&b;"/>',
            "no PCI address",
        ),
        ("<nvidia_smi_log>" + "<a>" * 100, "nested too deep"),
        ("<nvidia_smi_log>\n<attached_gpus>8</attached_gpus>\n</nvidia_smi_log>", "no 'GPU <bus id>'"),
    ],
    "nvidia-smi-query": [
        ("0, NVIDIA H100, 81559 MiB\n", "line 1.*no header"),
        ("index, name\n0\n", "line 2.*1 columns"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "couldn't communicate"),
        ('Field "clocks.nonsense" is not a valid field to query.\n', "clocks.nonsense"),
        *(
            (f"index, memory.total [MiB]\n0, 81559 MiB\n1, {cell}", "line 3: .*the unit of memory.total is cut")
            for cell in ("81559 M", "81559 Mi")
        ),
    ],
    "nvidia-smi-topo": [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "couldn't communicate"),
        ("\tGPU0\tGPU1\nGPU0\t X \tPIX\nFailed to run topology matrix\n", "line 3.*why it failed"),
        (TOPO[: TOPO.index("\t32-63")], "line 3.*cut before its CPU affinity"),
        (TOPO.replace("NV12\t X \tPIX", "NV12\t X \tPIK"), "line 3.*'PIK' under NIC0"),
        *(
            (TOPO_APART.replace(cells, glued), "grew together")
            for cells, glued in (("0-31 0 N/A", "0-310 N/A"), ("32-63 1 N/A", "32-63 1N/A"), ("0-31 0 N/A", "0-310N/A"))
        ),
    ],
    "perftest": [
        (tool_output("perftest", "ib_write_bw.help.txt"), "the program's help"),
        (tool_output("perftest", "ib_write_bw.output.client.txt"), "without --output"),
        (HEADER_GBIT + " 65536      5000             92.42", "line 2: ' 65536.*columns"),
        (HEADER_GBIT + " 65536 5000 92.42 92.40 0.17x", "line 2.*columns"),
        (HEADER_LAT.replace("usec", "cycles"), "line 1.*cycles"),
    ],
    "rdma-link": [
        ("rdma: command not found", "command not found.*no row that begins"),
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev", "line 1.*cut"),
        ("x\nlink a/1 state ACTIVE physical_state LINK_UP lid x2", "line 2.*'x2' is no number"),
    ],
    "torchrun-log": [
        ("epoch 1 loss 2.3\n", "line 1: .*no line of torch.distributed"),
        (SUMMARY.split(" (local_rank")[0], "line 11: .*a rank that is cut"),
        (SUMMARY.replace(" (pid: 77)", " (pi"), "line 12: .*a exitcode that is cut"),
        (OURS + "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpTy", "line 2: .*cut"),
        (OURS + "[Rank 1] watchdog at work: 4486, last enqueued NCCL work: 44", "line 2: .*cut"),
        (
            OURS + "The client socket has timed out after 60s while trying to connect to 192.0",
            "line 2: .*without its host and port",
        ),
    ],
}

ROCM = "========== ROCm System Management Interface ==========\nGPU[0] : Temperature: 41.0c\n"
for each in ("nvidia-smi", "nvidia-smi-q", "nvidia-smi-topo", "nvidia-smi-query"):
    REFUSED[each].append((ROCM, "rocm-smi"))


@pytest.mark.parametrize("tool", REFUSED)
def test_refused_with_its_line_and_reason(tool: str) -> None:
    for text, told in REFUSED[tool]:
        with pytest.raises(ParseError, match=told):
            PARSERS[tool](text)

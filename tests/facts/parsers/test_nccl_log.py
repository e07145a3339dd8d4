"""NCCL's log lines: who, which network, which algorithm, which warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nccl.nccl_log import NcclChoice, NcclNet, NcclWarning, parse_nccl_log, parse_nccl_paths
from tests.facts.parsers.tool_outputs import tool_output

WHO = "node-a:41001:41023 [0] "


def test_every_value_of_a_job() -> None:
    log = parse_nccl_log(tool_output("nccl-log", "info.txt"))
    assert (log.version, log.network, log.interfaces, log.nics) == (
        "2.28.9+cuda13.0",
        "IB",
        ("ens9f0",),
        ("mlx5_0", "mlx5_3"),
    )
    assert log.algorithms == (
        NcclChoice("AllReduce", 8388608, "RING", "SIMPLE"),
        NcclChoice("AllGather", 4096, "RING", "LL"),
    )
    first, second = log.warnings
    assert (first.host, first.pid, first.device, first.kind) == ("node-b", 52002, 3, "ib_completion")
    assert first.text.startswith("NET/IB: Got completion from peer 10.20.0.4<53908> with status=12")
    assert first.text.endswith("hca mlx5_3")
    assert second == NcclWarning("node-b", 52002, 3, "Cuda failure 2 'out of memory'", "cuda")


@pytest.mark.parametrize(
    ("said", "network", "interfaces", "nics"),
    [
        ("NET/Socket : Using [0]eth0:10.0.0.23<0>", "Socket", ("eth0",), ()),
        ("NET/Socket: Using [0]eth0:fe80::1%eth0<0> [1]eth1:10.0.0.2<0>", "Socket", ("eth0", "eth1"), ()),
        (
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]; OOB eno1:10.1.0.9<0>",
            "IB",
            ("eno1",),
            ("mlx5_0", "mlx5_bond_0"),
        ),
        ("NET/IB : Using [0]={[0] mlx5_2:1/RoCE/SHARP, [1] mlx5_3:1/RoCE} [RO]", "IB", (), ("mlx5_2", "mlx5_3")),
        ("Using network AWS Libfabric", "AWS Libfabric", (), ()),
        ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0", "Socket", (), ()),
        ("NCCL_SOCKET_IFNAME set by environment to eth0", None, (), ()),
    ],
)
def test_the_network(said: str, network: str | None, interfaces: tuple[str, ...], nics: tuple[str, ...]) -> None:
    for prefix in (WHO, "", "[1,0]<stdout>:" + WHO, "0: " + WHO):
        log = parse_nccl_log(f"{prefix}NCCL INFO {said}\r\n")
        assert (log.network, log.interfaces, log.nics) == (network, interfaces, nics)


def test_the_network_in_use_outweighs_those_that_were_found() -> None:
    text = f"{WHO}NCCL INFO NET/IB : Using [0]mlx5_0:1/IB\n{WHO}NCCL INFO Using network Socket\n"
    assert parse_nccl_log(text).network == "Socket"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NCCL version 2.30.3+cuda13.0\n", "2.30.3+cuda13.0"),
        (f"{WHO}NCCL INFO NCCL version 2.10.3+cuda11.1\n", "2.10.3+cuda11.1"),
        ("node-a: NCCL version 2.7.8+cuda10.2 compiled\n", "2.7.8+cuda10.2"),
    ],
)
def test_the_version(text: str, version: str) -> None:
    assert parse_nccl_log(text).version == version


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        (
            "AllReduce: 1024 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..0}",
            NcclChoice("AllReduce", 1024, "TREE", "LL128"),
        ),
        (
            "Broadcast:    32768 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..0}",
            NcclChoice("Broadcast", 32768, "RING", "SIMPLE"),
        ),
        ("2048 Bytes -> Algo 0 proto 1 time 12.500000", NcclChoice(None, 2048, "TREE", "LL128")),
        ("AllReduce: 4096 Bytes -> Algo 4 proto 2 time 1.0", NcclChoice("AllReduce", 4096, "NVLS", "SIMPLE")),
    ],
)
def test_the_algorithm_by_name_or_number(said: str, choice: NcclChoice) -> None:
    text = f"{WHO}NCCL INFO {said}\n"
    assert parse_nccl_log(text + text).algorithms == (choice,)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "NET/IB : Got completion from peer 10.1.32.3<54891> with error 5, opcode 0, len 0, vendor err 249",
            "ib_completion",
        ),
        ("NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129", "ib_completion"),
        ("Cuda failure 'out of memory'", "cuda"),
        ("Failed to CUDA calloc async 4 bytes", "cuda"),
        ("socketStartConnect: Connect to 10.0.0.1<1234> failed : Connection timed out", "timeout"),
        ("Timeout waiting for connection from 10.0.0.1", "timeout"),
        ("Mismatched NCCL version detected : 2.10 vs 2.14", "mismatch"),
        ("Bootstrap : no socket interface found", "no_interface"),
        ("Call to ibv_reg_mr failed", "other"),
    ],
)
def test_the_kind_of_a_warning(said: str, kind: str) -> None:
    (warning,) = parse_nccl_log(f"\n{WHO}misc/socket.cc:538 NCCL WARN {said}\n").warnings
    assert warning == NcclWarning("node-a", 41001, 0, said, kind)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("epoch 1 loss 2.3\n", "line 1: 'epoch 1 loss 2.3': no line of NCCL's"),
        (f"{WHO}NCCL INFO AllReduce: 8388608 Bytes -> Algo RI", "line 1: .*cut"),
        (f"{WHO}NCCL INFO AllReduce: 8388608 Bytes -> Algo 9 proto 1 time 1", "no name is known for number 9"),
        (f"{WHO}NCCL INFO AllReduce: 83x8 Bytes -> Algo RING proto LL channel", "line 1"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse_nccl_log(text)


def test_the_network_as_versions_from_2_27_on_name_it() -> None:
    found = parse_nccl_log("gpu-7:71:72 [3] NCCL INFO Assigned NET plugin IBext_v11 to comm\n")
    assert found.network == "IBext_v11"


SAMPLES = Path(__file__).parents[4] / "shared" / "samples"
WHO_OF_PATHS = "node-a:41001:41023 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("said", "transport"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM/read"),
        ("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct", "SHM/direct/direct"),
        ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0", "NET/Socket/0"),
        ("Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/3(8)/GDRDMA/Shared", "NET/IB/3(8)/GDRDMA/Shared"),
        ("Channel 01/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/4/GDRDMA", "NET/AWS Libfabric/4/GDRDMA"),
        ("Channel 00/0 : 0[0] -> 4[0] [send] via NET/IB/0(2)/GDRDMA(PCI)/Shared", "NET/IB/0(2)/GDRDMA(PCI)/Shared"),
    ],
)
def test_transports(said: str, transport: str) -> None:
    for prefix in (WHO_OF_PATHS, "NCCL INFO ", "[1,0]<stdout>:" + WHO_OF_PATHS):
        assert parse_nccl_paths(f"{prefix}{said}\n{prefix}{said}\n").transports == (transport,)


@pytest.mark.parametrize(
    ("listed", "via", "net"),
    [
        (
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_4:1/IB [RO]; OOB eno1:10.0.0.9<0>",
            "NET/IB/1/GDRDMA",
            NcclNet("IB", 1, "mlx5_4", True),
        ),
        ("NET/Socket : Using [0]eth0:10.0.0.23<0>", "NET/Socket/0", NcclNet("Socket", 0, "eth0", False)),
        (
            "NET/IB : Using [0]={[0] mlx5_2:1/RoCE/SHARP, [1] mlx5_3:1/RoCE} [RO]",
            "NET/IB/0",
            NcclNet("IB", 0, "mlx5_2+mlx5_3", False),
        ),
        ("NET/IB : Using [0]mlx5_0:1/IB", "NET/AWS Libfabric/0/GDRDMA", NcclNet("AWS Libfabric", 0, None, True)),
        (
            "NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2",
            "NET/IB/2/GDRDMA",
            NcclNet("IB", 2, "mlx5_0+mlx5_1", True),
        ),
    ],
)
def test_devices_by_name(listed: str, via: str, net: NcclNet) -> None:
    text = f"{WHO_OF_PATHS}{listed}\n{WHO_OF_PATHS}Channel 00/0 : 8[0] -> 0[0] [send] via {via}\n"
    assert parse_nccl_paths(text).nets == (net,)


def test_channels_environment_and_what_is_off() -> None:
    lines = (
        "NCCL_IB_DISABLE set by environment to 1.",
        "NCCL_SOCKET_IFNAME set by environment to =eth2",
        "NET/IB : No device found.",
        "NET/IB : GPU Direct RDMA Disabled for HCA 5 'mlx5_5'",
        "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer",
    )
    paths = parse_nccl_paths("".join(f"{WHO_OF_PATHS}{line}\n" for line in lines))
    assert paths.environment == {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth2"}
    assert paths.no_rdma == ("NCCL_IB_DISABLE set by environment to 1.", "NET/IB : No device found.")
    assert paths.gpu_direct_off == ("HCA 5 'mlx5_5'",)
    assert (paths.channels, paths.nvls_channels) == (24, 16)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="real logs are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "transports", "nets", "channels"),
    [
        ("nccl-info-gdr-enabled-channel-lines.txt", ("NET/IB/1/GDRDMA",), (NcclNet("IB", 1, None, True),), 2),
        ("nccl-info-net-using-lines.txt", ("NET/IB/0/GDRDMA",), (NcclNet("IB", 0, "mlx5_0", True),), None),
        ("nccl-log-2x4090-init.txt", (), (), None),
    ],
)
def test_real_logs(name: str, transports: tuple[str, ...], nets: tuple[NcclNet, ...], channels: int | None) -> None:
    paths = parse_nccl_paths((SAMPLES / name).read_text(errors="replace"))
    assert (paths.transports, paths.nets, paths.channels) == (transports, nets, channels)

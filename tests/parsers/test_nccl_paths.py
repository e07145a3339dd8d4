"""Which way NCCL's data goes: transports, devices and what stood in the way."""

from pathlib import Path

import pytest

from nodectl.parsers.nccl.nccl_log import NcclNet, parse_nccl_paths

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
WHO = "node-a:41001:41023 [0] NCCL INFO "


@pytest.mark.parametrize(
    ("said", "transport"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P/CUMEM/read"),
        ("Channel 02 : 0[0] -> 1[1] via P2P/IPC", "P2P/IPC"),
        ("Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct", "SHM/direct/direct"),
        ("Channel 00/0 : 0[0] -> 8[0] via P2P/MNNVL", "P2P/MNNVL"),
        ("Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0", "NET/Socket/0"),
        ("Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/3(8)/GDRDMA/Shared", "NET/IB/3(8)/GDRDMA/Shared"),
        ("Ring 00 : 1[18100000] -> 0[435e00000] [receive] via NET/IB/0/GDRDMA", "NET/IB/0/GDRDMA"),
        ("Channel 01/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/4/GDRDMA", "NET/AWS Libfabric/4/GDRDMA"),
        ("Channel 00/0 : 1[0] -> 0[0] [receive] via NET/NCCL RDMA Plugin v10/0", "NET/NCCL RDMA Plugin v10/0"),
        ("Channel 00/0 : 0[0] -> 4[0] [send] via NET/IB/0(2)/GDRDMA(PCI)/Shared", "NET/IB/0(2)/GDRDMA(PCI)/Shared"),
    ],
)
def test_transports(said: str, transport: str) -> None:
    for prefix in (WHO, "NCCL INFO ", "[1,0]<stdout>:" + WHO):
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
        ("NET/IB : Using [0]mlx5_0:1/IB", "NET/IBext_v10/0/GDRDMA", NcclNet("IBext_v10", 0, "mlx5_0", True)),
        (
            "NET/IB : Using [0]rocep1s0f0:1/RoCE",
            "NET/NCCL RDMA Plugin v10/0",
            NcclNet("NCCL RDMA Plugin v10", 0, "rocep1s0f0", False),
        ),
        ("NET/IB : Using [0]mlx5_0:1/IB", "NET/IB/0/GDRDMA(PCI)", NcclNet("IB", 0, "mlx5_0", True)),
        (
            "NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2",
            "NET/IB/2/GDRDMA",
            NcclNet("IB", 2, "mlx5_0+mlx5_1", True),
        ),
        (
            "NET/Socket : Using [0]bond0.100:fd00::12%bond0.100<0>",
            "NET/Socket/0",
            NcclNet("Socket", 0, "bond0.100", False),
        ),
    ],
)
def test_devices_by_name(listed: str, via: str, net: NcclNet) -> None:
    text = f"{WHO}{listed}\n{WHO}Channel 00/0 : 8[0] -> 0[0] [send] via {via}\n"
    assert parse_nccl_paths(text).nets == (net,)


def test_channels_environment_and_what_is_off() -> None:
    lines = (
        "NCCL_IB_DISABLE set by environment to 1.",
        "NCCL_SOCKET_IFNAME set by environment to =eth2",
        "NET/IB : No device found.",
        "NET/IB : GPU Direct RDMA Disabled for HCA 5 'mlx5_5'",
        "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 2 p2p channels per peer",
    )
    paths = parse_nccl_paths("".join(f"{WHO}{line}\n" for line in lines))
    assert paths.environment == {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth2"}
    assert paths.no_rdma == ("NCCL_IB_DISABLE set by environment to 1.", "NET/IB : No device found.")
    assert paths.gpu_direct_off == ("HCA 5 'mlx5_5'",)
    assert (paths.channels, paths.nvls_channels) == (24, 16)


def test_rdma_that_is_not_forbidden_is_no_cause_and_the_adapters_asked_for_are_told() -> None:
    paths = parse_nccl_paths(f"{WHO}NCCL_IB_DISABLE set by environment to 0.\n{WHO}NCCL_IB_HCA set to =mlx5_0\n")
    assert paths.no_rdma == ()
    assert paths.environment == {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "=mlx5_0"}


def test_a_text_without_any_is_no_error() -> None:
    paths = parse_nccl_paths("# nThread 1 nGpus 2\nsome other line, sent via MAIL\n")
    assert (paths.transports, paths.nets, paths.channels, paths.environment) == ((), (), None, {})


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

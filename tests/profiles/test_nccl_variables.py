"""The table of NCCL's variables: what is known, near, debugging, and which values each takes."""

import pytest

from nodectl.errors import ProfileError
from nodectl.profiles.compat import IncompatibleError, nccl_problems
from nodectl.profiles.host_compat import HostLook, host_problems
from nodectl.profiles.matrix import matrix
from nodectl.profiles.nccl import is_debug_variable, variables, why_no_name, why_no_value
from nodectl.profiles.resolve import resolve


def test_the_guides_debugging_variables_are_those_that_are_flagged() -> None:
    assert sum(row.debug for row in variables().values()) == 69
    flagged = ("NCCL_RUNTIME_CONNECT", "NCCL_COMM_BLOCKING", "NCCL_CHECK_POINTERS", "NCCL_IB_OOO_RQ", "NCCL_WIN_ENABLE")
    assert all(map(is_debug_variable, flagged))
    assert not any(map(is_debug_variable, ("NCCL_IB_HCA", "NCCL_DEBUG", "NCCL_GIN_ENABLE", "FI_PROVIDER")))


@pytest.mark.parametrize(
    "name",
    ["NCCL_GIN_ENABLE", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "OFI_NCCL_PROTOCOL", "NCCL_OF_A_LATER_ONE", "UCX_TLS"],
)
def test_what_nccl_or_a_plug_in_reads_may_stand(name: str) -> None:
    assert why_no_name(name) == ""


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NCCL_NSOCKS_PERTREAD", "NCCL_NSOCKS_PERTHREAD"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("OFI_NCCL_PROTOCOLL", "OFI_NCCL_PROTOCOL"),
        ("NCCL_P2P_DISABLED", "NCCL_P2P_DISABLE"),
    ],
)
def test_a_slip_is_refused_with_the_name_that_is_meant(name: str, near: str) -> None:
    assert why_no_name(name).endswith(f"did you mean {near}?")
    with pytest.raises(ProfileError, match=f"did you mean {near}"):
        resolve("lab-cpu", "cpu", "stock", nccl_env={name: "1"})


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("NCCL_ALGO", ["Ring", "^NVLS", "ring;allreduce:tree,ring", "allreduce:^tree"], ["Foo", "ring,", ""]),
        ("NCCL_PROTO", ["LL,LL128,Simple", "^ll128"], ["LL256", "LL LL128"]),
        ("NCCL_NTHREADS", ["256"], ["300", "many"]),
        ("NCCL_IB_TIMEOUT", ["22", "0x16"], ["32", "-1", "18s"]),
        ("NCCL_P2P_DISABLE", ["1", "0"], ["true", "yes"]),
        ("NCCL_P2P_LEVEL", ["PIX", "3"], ["pix", "NVLINK"]),
        ("NCCL_BUFFSIZE", ["4194304"], ["4M"]),
        ("NCCL_DEBUG", ["info", "WARN"], ["DEBUG"]),
        ("NCCL_DEBUG_SUBSYS", ["INIT,NET", "^COLL"], ["INIT NET"]),
        ("NCCL_SOCKET_FAMILY", ["AF_INET6"], ["IPv6", "af_inet"]),
        ("NCCL_NETDEVS_POLICY", ["AUTO", "MAX:2"], ["MAX:", "2"]),
        ("NCCL_CTA_POLICY", ["ZERO|EFFICIENCY", "2"], ["3", "FAST"]),
        ("OFI_NCCL_PROTOCOL", ["RDMA", "sendrecv"], ["TCP"]),
        ("NCCL_SOCKET_IFNAME", ["=eth1"], []),
        ("NCCL_NET", ["IB", "socket", "AWS Libfabric", "FasTrak", "IBext_v8", "UCX"], ["IBB", "Sockets", "I B"]),
        ("NCCL_IB_TC", ["106", "0", "255"], ["256", "-1", "high"]),
        ("NCCL_IB_SL", ["0", "15"], ["16"]),
    ],
)
def test_the_values_that_nccl_takes(name: str, right: list[str], wrong: list[str]) -> None:
    assert [why_no_value(name, value) for value in right] == [""] * len(right)
    assert all(why_no_value(name, value).startswith(f"{name} takes ") for value in wrong)


def test_what_this_nccl_does_not_read_is_said() -> None:
    env = {"NCCL_GIN_ENABLE": 1, "NCCL_LL_THRESHOLD": 1, "NCCL_OF_A_LATER_ONE": 1, "NCCL_IB_TC": 1}
    resolved = resolve("lab-cpu", "cpu", "stock", nccl_env=env, overrides={"allow_debug_variables": True})
    told = [problem.reason for problem in nccl_problems(resolved.nccl_env, "2.21.5")]
    assert [reason.partition(" is set")[0] for reason in told] == [
        "NCCL_GIN_ENABLE",
        "NCCL_LL_THRESHOLD",
        "NCCL_OF_A_LATER_ONE",
    ]


@pytest.mark.parametrize("hardware", ["rtx4090-3", "a100-pcie-8", "lab-cpu"])
def test_infiniband_alone_is_refused_on_hardware_without(hardware: str) -> None:
    stack = "cpu" if hardware == "lab-cpu" else "cu128"
    resolve(hardware, stack, "stock", nccl_env={"NCCL_NET": "Socket"})
    with pytest.raises(IncompatibleError, match="network IB not found"):
        resolve(hardware, stack, "stock", nccl_env={"NCCL_NET": "ib"})


def test_infiniband_that_is_taken_away_is_refused() -> None:
    resolve("dgx-a100", "cu128", "stock", nccl_env={"NCCL_NET": "IB"})
    with pytest.raises(IncompatibleError, match="NCCL_IB_DISABLE=1 takes that network away"):
        resolve("dgx-a100", "cu128", "stock", nccl_env={"NCCL_NET": "IB", "NCCL_IB_DISABLE": 1},
                overrides={"allow_debug_variables": True})  # fmt: skip


@pytest.mark.parametrize(
    ("hardware", "devices", "refused"),
    [("unknown", [], True), ("unknown", ["mlx5_0"], False), ("unknown", None, False), ("dgx-a100", [], False)],
)
def test_infiniband_alone_on_a_host_without(hardware: str, devices: list[str] | None, refused: bool) -> None:
    resolved = resolve(hardware, "cu128", "stock", nccl_env={"NCCL_NET": "IB"})
    look = HostLook.create({"rdma": devices})
    found = host_problems(resolved.hardware, resolved.stack, resolved.tuning, look, matrix())
    assert [problem.refuses for problem in found if problem.code == "nccl-net-ib-here"] == (
        [refused] if devices == [] else []
    )


@pytest.mark.parametrize(("name", "value"), [("nofile", 9), ("nofile", 1023), ("memlock", 8)])
def test_limits_that_end_logins_are_refused(name: str, value: int) -> None:
    with pytest.raises(ProfileError, match=f"limits.{name} is {value}, and with less than"):
        resolve("lab-cpu", "cpu", "stock", overrides={"limits": {name: value}})


@pytest.mark.parametrize(
    ("group", "name", "value", "reason"),
    [
        ("limits", "nofile", 2**40, "no kernel takes more"),
        ("sysctl", "net.core.rmem_max", "plenty", "takes whole numbers"),
        ("sysctl", "vm.swappiness", "10 %", "takes whole numbers"),
        ("sysctl", "net/ipv4/tcp_rmem", "4096 131072", "three ascending numbers"),
        ("sysctl", "net.ipv4.tcp_wmem", "16777216 65536 4096", "three ascending numbers"),
    ],
)
def test_values_that_no_kernel_takes_are_refused(group: str, name: str, value: object, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        resolve("lab-cpu", "cpu", "stock", overrides={group: {name: value}})

"""What was missed, or not named: lines that NCCL reads otherwise, the GPUs' order, a login's own file, no Python."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodectl.checks.check import Subject
from nodectl.checks.fleet.compare import Member, compare, values_of
from nodectl.checks.kernel.settings import why_misread
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.host_files import NcclFiles
from nodectl.facts.storage import DISK_FACT as DISK
from nodectl.facts.versions import Versions
from nodectl.model.recording import Entry, Recording
from tests.checks.table import UNREAD, Case

GOOD = "# NCCL\nNCCL_IB_TIMEOUT=22\n\nNCCL_SOCKET_IFNAME=^lo,docker\n"
LINES = [
    Case("nccl_lines", "ok", {"nccl_files": NcclFiles(GOOD, None)}),
    Case("nccl_lines", "ok", {"nccl_files": NcclFiles(None, None)}),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles(GOOD + "NCCL_ALGO= Ring\n", None)}),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles(GOOD, 'NCCL_ALGO="Ring"')}, subject="~/.nccl.conf line 1"),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles(GOOD, "NCCL_ALGO=Foo", "/own")}, subject="/own line 1"),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles("NCCL_CONF_FILE=/own", None)}),
    Case("nccl_lines", "unknown", {"nccl_files": UNREAD}),
]
PYTHON = [
    Case("python3", "ok", {"versions": Versions("/v", python3="3.10.12")}),
    Case("python3", "failed", {"versions": Versions("/v", unavailable={"python3": "python3 is not installed"})}),
    Case("python3", "unknown", {"versions": Versions("/v", unavailable={"python3": "python3 did not end in time"})}),
    Case("python3", "unknown", {"versions": UNREAD}),
]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("NCCL_IB_TIMEOUT = 22", "a blank is part of the name"),
        ("NCCL_IB_TIMEOUT=22 ", "a blank is part of the value"),
        ("NCCL_IB_TIMEOUT=22\r", "a blank is part of the value"),
        ("NCCL_IB_TIMEOUT=", "the value is blank"),
        ("NCCL_NET='IB'", "the quotes are part of the value"),
        (" # why", "# is a comment in the first column only"),
        ("NCCL_NET", "no `=`"),
        ("export NCCL_NET=IB", "`export` is part of the name"),
        ("nccl_net=IB", "neither NCCL nor a plug-in reads"),
        ("CUDA_VISIBLE_DEVICES=0", "neither NCCL nor a plug-in reads"),
        ("NCCL_ALGO=Foo", "NCCL_ALGO takes a list of Ring, Tree"),
        ("NCCL_P2P_DISABLE=true", "NCCL_P2P_DISABLE takes a whole number"),
        ("NCCL_SOCKET_IFNAM=eth0", "did you mean NCCL_SOCKET_IFNAME?"),
        ("NCCL_NSOCKS_PERTREAD=4", "did you mean NCCL_NSOCKS_PERTHREAD?"),
    ],
)
def test_it_is_said_what_is_wrong(line: str, reason: str) -> None:
    assert reason in why_misread(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "#x = y",
        "NCCL_IB_HCA==mlx5_0",
        "NCCL_OFI_NEW_ONE=1",
        "FI_PROVIDER=efa",
        "NCCL_GIN_ENABLE=1",
        "NCCL_IB_TIMEOUT=22",
        "  ",
    ],
)
def test_what_nccl_reads_as_it_stands_is_right(line: str) -> None:
    assert why_misread(line) == ""


def members(*facts: Mapping[str, object]) -> list[Member]:
    hosts = [Subject(f"n{number}", each, None) for number, each in enumerate(facts, 1)]
    return [Member(host.host, "dgx", *values_of(host)) for host in hosts]


def odd(*facts: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(each.host, each.check) for each in compare(members(*facts))]


ONE, TWO = Gpu("0000:07:00.0", index=0), Gpu("0000:0F:00.0", index=1)


def test_gpus_in_another_order_are_found_and_a_missing_one_is_not_told_twice() -> None:
    usual = {"gpus": Gpus(2, (ONE, TWO))}
    turned = {"gpus": Gpus(2, (replace(TWO, index=0), replace(ONE, index=1)))}
    moved = {"gpus": Gpus(2, (ONE, replace(TWO, bus_id="0000:2F:00.0")))}
    assert odd(usual, usual, turned) == odd(usual, usual, moved) == [("n3", "fleet_gpu_order")]
    assert odd(usual, usual, {"gpus": Gpus(1, (ONE,))}) == [("n3", "fleet_gpus")]


def test_any_variable_of_one_logins_file_is_found() -> None:
    none, own = ({"nccl_files": NcclFiles("", text)} for text in (None, "NCCL_IB_TIMEOUT=23\n"))
    assert odd(none, none, own) == [("n3", "fleet_nccl_user")]
    assert odd(own, own) == []


def test_the_inodes_of_home_are_read_where_there_is_one() -> None:
    row, inodes = "/dev/sda1 1000 100 900 10% /", "/dev/sda1 1000 {} 100 90% /"
    head = f"/root/x\nFilesystem 1024-blocks Used Available Capacity Mounted on\n{row}\n{row}\n"
    two = f"{head}Filesystem Inodes IUsed IFree IUse% Mounted on\n{inodes.format(100)}\n{inodes.format(200)}\n"
    for text, used in ((two, None), (f"{two}/dev/sdb1 1000 970 30 97% /home\n", 97)):
        disk = DISK.read(Recording("n1", {"df": Entry("df", (), 0, text, "", 0.0)}))
        assert (disk.root_inodes_used_percent, disk.state_inodes_used_percent) == (10, 20)
        assert disk.home_inodes_used_percent == used

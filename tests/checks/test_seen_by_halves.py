"""What was missed, or not named: lines that NCCL reads otherwise, a login's own file, no Python."""

import pytest

from nodectl.checks.kernel.settings import why_misread
from nodectl.facts.host_files import NcclFiles
from nodectl.facts.versions import Versions
from tests.checks.table import Case

GOOD = "# NCCL\nNCCL_IB_TIMEOUT=22\n\nNCCL_SOCKET_IFNAME=^lo,docker\n"
LINES = [
    Case("nccl_lines", "ok", {"nccl_files": NcclFiles(GOOD, None)}),
    Case("nccl_lines", "ok", {"nccl_files": NcclFiles(None, None)}),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles(GOOD + "NCCL_ALGO= Ring\n", None)}),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles(GOOD, 'NCCL_ALGO="Ring"')}, subject="~/.nccl.conf line 1"),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles(GOOD, "NCCL_ALGO=Foo", "/own")}, subject="/own line 1"),
    Case("nccl_lines", "warning", {"nccl_files": NcclFiles("NCCL_CONF_FILE=/own", None)}),
]
PYTHON = [
    Case("python3", "ok", {"versions": Versions("/v", python3="3.10.12")}),
    Case("python3", "failed", {"versions": Versions("/v", unavailable={"python3": "python3 is not installed"})}),
    Case("python3", "unknown", {"versions": Versions("/v", unavailable={"python3": "python3 did not end in time"})}),
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

"""lscpu, /proc/meminfo, df, ip and os-release: every column once, and what must be refused."""

from collections.abc import Callable

import pytest

from nodectl.errors import ParseError
from nodectl.facts.kernel import parse_os_release
from nodectl.facts.network import parse_ip_address
from nodectl.facts.processors import Cpu, parse_lscpu, parse_meminfo
from nodectl.facts.storage import FileSystem, parse_df
from tests.facts.parsers.tool_outputs import recorded_text

LSCPU = recorded_text("host-tools-lscpu.txt")


def test_lscpu() -> None:
    cpu = Cpu("AMD EPYC 9534 64-Core Processor", "x86_64", 3, 192, 256, 8, online="0-255")
    assert parse_lscpu(LSCPU) == cpu


def test_meminfo_is_in_mib_and_leaves_counts_out() -> None:
    text = "MemTotal:  24683720 kB\nMemAvailable: 22000640 kB\nHugePages_Total:       3\n"
    assert parse_meminfo(text) == {"MemTotal": 24105, "MemAvailable": 21485}


def test_df_with_blanks_in_names() -> None:
    text = "Filesystem 1024-blocks Used Available Capacity Mounted on\n//nas/my share  2097152 5 1048576 50% /mnt/a b\n"
    assert parse_df(text) == (FileSystem("//nas/my share", "/mnt/a b", 2048, 1024, 50),)


def test_os_release_is_quoted_as_in_a_shell() -> None:
    text = '# note\nID=debian\nVERSION_ID="12"\nPRETTY_NAME=\'A "b" c\'\nEMPTY=\n'
    assert parse_os_release(text) == {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": 'A "b" c', "EMPTY": ""}


@pytest.mark.parametrize(
    ("parse", "text", "told"),
    [
        (parse_lscpu, "", "printed nothing"),
        (parse_lscpu, "CPU(s): many", "line 1.*many"),
        (parse_lscpu, "Model name: x", "names no"),
        (parse_meminfo, "MemTotal: 1 kB\nMemFree oops", "line 2"),
        (parse_meminfo, "MemFree: 1 kB", "MemTotal"),
        (parse_df, "Filesystem 1024-blocks Used Available Capacity Mounted on\ndf: /x: gone\n", "line 2"),
        (parse_df, "", "no file system"),
        (parse_ip_address, "[", "line 1"),
        (parse_ip_address, "{}", "no list"),
        (parse_ip_address, '[{"ifname":"eth0"}]', "eth0"),
        (parse_os_release, "ID=debian\nNAME='open", "line 2"),
        (parse_os_release, "no equals sign", "line 1"),
    ],
)
def test_what_cannot_be_read_is_refused(parse: Callable[[str], object], text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse(text)

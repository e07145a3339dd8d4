"""The kernel's log: every kind of event, every form of time, and what is no event."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.dmesg import KernelEvent, parse_dmesg
from tests.facts.parsers.tool_outputs import tool_output

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def only(line: str) -> KernelEvent:
    (event,) = parse_dmesg(line).events
    return event


def brief(event: KernelEvent) -> tuple[object, ...]:
    values = (event.kind, event.pci, event.code, event.pid, event.process, event.severity, event.device, event.state)
    return tuple(value for value in values if value is not None)


def test_the_events_of_a_boot_in_their_order() -> None:
    assert [brief(event) for event in parse_dmesg(tool_output("dmesg", "boot.txt")).events] == [
        ("pcie_limited", "0000:3b:00.0"),
        ("nic_link", "0000:3b:00.0", "ens3f0np0", "up"),
        ("ib_link", "0000:5e:00.0", "mlx5_2", "down"),
        ("ib_link", "0000:5e:00.0", "mlx5_2", "up"),
        ("nic_link", "ens3f1np1", "down"),
        ("nic_link", "0000:00:1f.6", "eno1", "up"),
        ("xid", "0000:17:00", 63, 40211, "python3.11"),
        ("xid", "0000:65:00", 79),
        ("gpu_lost", "0000:65:00.0"),
        ("xid", "0000:b1:00", 94, 7, "a"),
        ("xid", "0019:01:00", 145, "nonfatal"),
        ("xid", "0018:01:00", 149, "fatal"),
        ("sxid", "0000:84:00.0", 22013, "nonfatal"),
        ("sxid", "0000:86:00.0", 24007, "fatal"),
        ("mce",),
        ("oom", 51234, "python3"),
        ("segfault", 60077, "pt_main_thread"),
        ("peermem",),
    ]


@pytest.mark.parametrize("prefix", ["               ", "[ 1843.308146] "])
def test_a_lost_gpu_whose_sentence_is_wrapped(prefix: str) -> None:
    first = "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
    rest = ["NVRM: (PCI ID: 10de:26b5) installed in this system has", "NVRM: fallen off the bus and is not responding."]
    event = only(first + "".join(f"{prefix}{line}\n" for line in rest))
    assert (event.kind, event.pci) == ("gpu_lost", "0000:b3:00.0")
    assert event.time == ("1843.308145" if prefix.isspace() else "1843.308146")


def test_kmsg_with_its_continued_lines() -> None:
    xid, oom = parse_dmesg(tool_output("dmesg", "kmsg.txt")).events
    assert (xid.time, xid.code, xid.pid, xid.process) == ("2001117202", 48, 911, "train")
    assert xid.text.startswith("NVRM: Xid (PCI:0000:b3:00): 48, pid=911")
    assert (oom.kind, oom.time, oom.pid, oom.process) == ("oom", "2001117300", 33, "dataloader")


@pytest.mark.parametrize(
    ("prefix", "time"),
    [
        ("", None),
        ("[12345.678901] ", "12345.678901"),
        ("[    3.000001][  T214] ", "3.000001"),
        ("<4>[  201.650687] ", "201.650687"),
        ("[    3.123456 <    0.000210>] ", "3.123456 <    0.000210>"),
        ("[Sun Feb 23 16:24:18 2025] ", "Sun Feb 23 16:24:18 2025"),
        ("[Feb23 16:24] ", "Feb23 16:24"),
        ("[  +0.000012] ", "+0.000012"),
        ("kern  :err   : [  201.650687] ", "201.650687"),
        ("kern  :err   : 2025-02-10T16:28:06,502716+00:00 ", "2025-02-10T16:28:06,502716+00:00"),
        ("4,1202,2001117202,-;", "2001117202"),
        ("Aug 17 06:18:01 gpu-node-7 kernel: ", "Aug 17 06:18:01"),
        ("2025-01-17T17:39:30+0000 gpu-node-7 kernel: ", "2025-01-17T17:39:30+0000"),
        ("Fri 2025-01-17 17:39:30 UTC gpu-node-7 kernel: ", "Fri 2025-01-17 17:39:30 UTC"),
        ("1737135570.123456 gpu-node-7 kernel: ", "1737135570.123456"),
    ],
)
def test_every_form_of_time(prefix: str, time: str | None) -> None:
    event = only(prefix + XID + "\r\n")
    assert (event.time, event.text) == (time, XID)
    assert brief(event) == ("xid", "0000:0f:00", 79, 1234, "python3")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", ("xid", "0000:03:00", 14)),
        ("NVRM: Xid (PCI:0000:0f:00): 64, pid='<unknown>', name=<unknown>, Row", ("xid", "0000:0f:00", 64)),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=py th, Ch 1", ("xid", "0000:dc:00", 45, 18, "py th")),
        (
            "NVRM: The NVIDIA GPU 0000:c1:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus",
            ("gpu_lost", "0000:c1:00.0"),
        ),
        ("nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -22)", ("peermem",)),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: be00000000800400", ("mce",)),
        ("mce: Uncorrected hardware memory error in user-access at 7f00", ("mce",)),
        ("MCE: Killing python3:4242 due to hardware memory corruption fault at 7f00", ("mce", 4242, "python3")),
        ("Out of memory: Killed process 29 (ray::Worker) total-vm:9kB, anon-rss:8kB", ("oom", 29, "ray::Worker")),
        ("Killed process 31 (java) total-vm:9kB", ("oom", 31, "java")),
        (
            "mlx4_core 0000:06:00.0: mlx4_ib: Port 2 logical link is down",
            ("ib_link", "0000:06:00.0", "mlx4_ib", "down"),
        ),
        ("ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps", ("nic_link", "0000:01:00.0", "eth0", "up")),
        ("e1000: eth1 NIC Link is Up 1000 Mbps", ("nic_link", "eth1", "up")),
        ("systemd-networkd[5398]: ens1: Gained carrier", ("nic_link", "ens1", "up")),
        ("igb 0000:05:00.0 enp5s0: igb: enp5s0 NIC Link is Down", ("nic_link", "0000:05:00.0", "enp5s0", "down")),
        ("bond0: link status definitely down for interface eth2, disabling it", ("nic_link", "eth2", "down")),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Data {0x1, 0x2}", ("sxid", "0000:c1:00.0", 12028)),
    ],
)
def test_the_forms_of_one_event(line: str, expected: tuple[object, ...]) -> None:
    assert brief(only(f"[  5.100000] {line}")) == expected


@pytest.mark.parametrize(
    "line",
    [
        "ata6: SATA link down (SStatus 4 SControl 300)",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "mce: CPU supports 32 MCE banks",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0",
        "the link is down",
    ],
)
def test_what_is_no_event(line: str) -> None:
    assert parse_dmesg(f"[  5.100000] {line}\n").events == ()


@pytest.mark.parametrize(
    ("lines", "killed"),
    [
        (["Kill process 7 (a) score 900 or sacrifice child", "Killed process 7 (a) total-vm:1kB"], [7]),
        (["Kill process 7 (a) score 900 or sacrifice child", "Killed process 9 (b) total-vm:1kB"], [9]),
        (["Kill process 7 (a) score 900 or sacrifice child"], [7]),
        (["oom-kill:constraint=X,task=a,pid=7,uid=0"], [7]),
        (["oom-kill:constraint=X,task=a,pid=7,uid=0", "Out of memory: Killed process 7 (a) total-vm:1kB"], [7]),
        (["Killed process 7 (a) x", "Killed process 8 (a) x", "Killed process 7 (a) x"], [7, 8, 7]),
        (["oom-kill:task=a,pid=7,uid=0", "Killed process 7 (a) x", "oom-kill:task=b,pid=8,uid=0"], [7, 8]),
    ],
)
def test_one_event_for_each_process_that_was_killed(lines: list[str], killed: list[int]) -> None:
    text = "\n".join(f"[  5.10000{number}] {line}" for number, line in enumerate(lines))
    assert [event.pid for event in parse_dmesg(text).events] == killed


@pytest.mark.parametrize("length", range(len("NVRM: Xid"), len("NVRM: Xid (PCI:0000:0f:00): 79")))
def test_an_xid_that_is_cut_is_no_xid(length: int) -> None:
    log = parse_dmesg(f"[  5.1] eth0: NIC Link is Down\n[  5.100000] {XID[:length]}")
    assert [event.kind for event in log.events] == ["nic_link"] and log.refused == 1
    assert log.refused_line == f"line 2: {XID[:length].strip()}"


@pytest.mark.parametrize("rest", ["46", "46 GPU stopped processing", "46,", "46: text"])
def test_an_xid_that_says_no_more_than_its_number(rest: str) -> None:
    log = parse_dmesg(f"[  5.1] NVRM: Xid (PCI:0000:3f:00): {rest}\n[  5.2] usb 1-1: new device\n")
    assert [brief(event) for event in log.events] == [("xid", "0000:3f:00", 46)] and log.refused == 0


QUOTED = "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        f"<13>[ 5.0] {QUOTED}",
        f"user  :notice: [ 5.0] {QUOTED}",
        f"daemon:err   : [ 5.0] {QUOTED}",
        f"Aug 17 06:18:01 node07 alice[4711]: {QUOTED}",
        f"[ 5.0] alice: saw {QUOTED}",
        f"<6>[ 5.0] audit: type=1400 {QUOTED}",
        f"<13>[ 5.0] harmless\\x0a<3>[ 5.1] {QUOTED}",
        "<13>[ 5.0] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30",
        "<13>[ 5.0] NVRM: Xid (PCI:0000:41:0",
    ],
)
def test_what_a_program_says_is_no_word_of_the_kernels(line: str) -> None:
    log = parse_dmesg(f"<6>[ 1.0] usb 1-1: new device\n{line}\n")
    assert (log.events, log.refused) == ((), 0)


def test_an_odd_line_hides_no_other() -> None:
    odd = ["<4>[ 3.0] NVRM: Xid (PCI:0000:3f:0", f"<13>[ 4.0] {QUOTED}", f"<4>[ 5.0] NVRM: Xid {'x' * 30_000}"]
    log = parse_dmesg("\n".join(["<4>[ 2.0] " + XID, *odd, "<4>[ 6.0] NVRM: Xid (PCI:0000:99:00): 48, DBE"]) + "\n")
    assert [(event.code, event.pci) for event in log.events] == [(79, "0000:0f:00"), (48, "0000:99:00")]
    assert log.refused == 2


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("<4>[ 5.0] NVRM: nvAssertOkFailedNoLog: Assertion failed: Call timed out [NV_ERR_TIMEOUT] (0x65)", ["driver"]),
        ("<4>[ 5.0] NVRM: GPU 0000:0f:00.0: fatal hardware condition 0x17", ["driver"]),
        ("<3>[ 5.0] NVRM: something of which nobody knows the word", ["driver"]),
        ("kern  :err   : [ 5.0] nvidia-nvswitch0: Interrupts off to stop a storm", ["driver"]),
        ("<4>[ 5.0] nvidia-modeset: ERROR: GPU:0: Idling display engine timed out", ["driver"]),
        ("<4>[ 5.0] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07", []),
        ("<6>[ 5.0] nvidia-uvm: Loaded the UVM driver, major device number 509.", []),
        ("<6>[ 5.0] python3: my NVRM: error in a program", []),
    ],
)
def test_a_complaint_of_the_driver_that_no_catalogue_has(line: str, kinds: list[str]) -> None:
    assert [event.kind for event in parse_dmesg(f"{line}\n").events] == kinds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("dmesg: read kernel buffer failed: Operation not permitted\n", "read kernel buffer failed"),
        ("sudo: a password is required\n", "a password is required"),
        ("bash: dmesg: command not found\n", "command not found"),
        ("-- No entries --\n", "No entries"),
        ("No journal files were opened due to insufficient permissions.\n", "insufficient permissions"),
        ("one two three\nfour\n", "line 1: 'one two three': no line of a kernel log"),
    ],
)
def test_what_is_no_log_says_why(text: str, why: str) -> None:
    with pytest.raises(ParseError, match="(?i)" + why):
        parse_dmesg(text)


@pytest.mark.parametrize(
    ("before", "time"),
    [
        ("[1,3]<stdout>:[ 71.500000] ", "71.500000"),
        ("[Fr Nov 15 05:39:15 2024] ", "Fr Nov 15 05:39:15 2024"),
        ("[五 11月 15 05:39:15 2024] ", "五 11月 15 05:39:15 2024"),
        ("gpu-071: Nov 15 05:39:15 gpu-071 kernel: [ 71.500000] ", "Nov 15 05:39:15"),
    ],
)
def test_a_time_behind_what_a_shell_or_another_language_prints(before: str, time: str) -> None:
    text = "NVRM: Xid (PCI:0000:71:00): 79, GPU has fallen off the bus."
    (event,) = parse_dmesg(f"{before}{text}\n").events
    assert (event.time, event.text) == (time, text)


@pytest.mark.parametrize("what", ["general protection fault", "general protection", "trap invalid opcode"])
def test_a_crash_that_is_no_segfault(what: str) -> None:
    event = only(
        f"[ 9.5] traps: python3[48120] {what} ip:7f1b2c3d4e5f sp:7ffd1a2b3c40 error:0 in libcuda.so.550[7f00+1000]\n"
    )
    assert (event.kind, event.pid, event.process) == ("segfault", 48120, "python3")


def test_lines_below_a_users_record_are_the_users() -> None:
    xid = "NVRM: Xid (PCI:0000:3f:00): 79, pid=1, GPU has fallen off the bus."
    kernels = f"<6>[1.0] Linux version 6.1\n<4>[2.0] {xid}\n"
    assert len(parse_dmesg(f"{kernels}<13>[3.0] my test said:\n {xid}\n{xid}\n<6>[4.0] eth0: link up\n").events) == 2
    below_the_kernels = parse_dmesg(f"{kernels}<4>[3.0] NVRM: a message of two lines\n{xid}\n")
    assert (len(below_the_kernels.events), below_the_kernels.refused) == (1, 1)


def test_a_line_without_the_priority_that_each_record_has_is_not_the_kernels() -> None:
    kernels = "<6>[1.0] usb 1-1: new device\n<4>[2.0] usb 1-1: new device\n"
    xid = "NVRM: Xid (PCI:0000:3f:00): 79, pid=1, name=a, GPU has fallen off the bus."
    whole = parse_dmesg(f"{kernels}<4>[3.0] {xid}\n")
    assert ([each.kind for each in whole.events], whole.refused) == (["xid"], 0)
    for line in (xid, f"[3.0] {xid}", f"[3.0] kernel: {xid}"):
        log = parse_dmesg(f"{kernels}{line}\n")
        assert (log.events, log.refused) == ((), 1)
        assert parse_dmesg(f"{kernels}<13>[2.5] a program's\n{line}\n").refused == 0
    assert [each.kind for each in parse_dmesg(f"[1.0] usb 1-1: new device\n[3.0] {xid}\n").events] == ["xid"]

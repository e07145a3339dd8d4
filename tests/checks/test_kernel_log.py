"""What the kernel's log tells of memory, crashes and links."""

from nodectl.checks.kernel import log as kernel_log
from nodectl.facts.look import Lab
from nodectl.facts.parsers.linux.dmesg import parse_dmesg
from tests.checks.table import Case, found

QUIET = "[    0.000000] Linux version 5.15.0-91-generic (buildd@x)\n"
OOM = "[ 99.1] Out of memory: Killed process 812 (python3) total-vm:9kB, anon-rss:9kB, file-rss:0kB, shmem-rss:0kB\n"
MCE = "[ 12.5] mce: [Hardware Error]: Machine check events logged\n"
LOST = "[ 13.5] MCE: Killing python3:4711 due to hardware memory corruption fault at 7f0000000000\n"
CRASH = "[ 15.0] python3[4242]: segfault at 8 ip 00007f1 sp 00007ff error 4 in libnccl.so.2.18.1[7f1+1000]\n"
OTHER = "[ 15.0] conky[4243]: segfault at 8 ip 00007f1 sp 00007ff error 4 in conky[7f1+1000]\n"


def log(text: str) -> dict[str, object]:
    return {"kernel_events": parse_dmesg(QUIET + text)}


CASES = [
    Case("oom", "ok", log("")),
    Case("oom", "warning", log(OOM), action="restart job"),
    Case("machine_check", "ok", log(OOM)),
    Case("machine_check", "warning", log(MCE), action="drain"),
    Case("machine_check", "failed", log(MCE + LOST), action="drain"),
]


def test_the_evidence_is_the_logs_last_line_of_it() -> None:
    (oom,) = [each for each in found(kernel_log, Case("", "", log(OOM + CRASH))) if each.check == "oom"]
    assert "Killed process 812" in oom.evidence and "python3 (1)" in oom.actual


def test_the_log_of_a_lab_host_is_the_machines() -> None:
    assert found(kernel_log, Case("", "", {**log(OOM), "lab": Lab("lab", ("kernel",))})) == []


def test_without_gpus_nobody_asks_for_the_log() -> None:
    assert found(kernel_log, Case("", "", {})) == []

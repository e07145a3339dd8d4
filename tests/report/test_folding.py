"""Findings of many hosts on two screens: folded over GPUs, hosts and a common cause; `--all` shows each."""

from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.report.findings import HINT, changes, findings_table

HOSTS = [f"node{number:02}" for number in range(1, 65)]
REMEDY = "set gpu.persistence in the tuning"


def persistence(host: str, gpu: int) -> Finding:
    subject = f"GPU {gpu} (0000:{gpu:02x}:00.0)"
    return Finding(host, "gpu_persistence", Status.WARNING, subject, expected="on", actual="off", remedy=REMEDY)


def test_one_setting_that_is_off_everywhere_is_one_line_and_its_remedy() -> None:
    lines = findings_table([persistence(host, gpu) for host in HOSTS for gpu in range(8)]).splitlines()
    assert lines[0].startswith("WARNING  node[01-64]  gpu_persistence: GPU 0 (0000:00:00.0), ")
    assert lines[0].endswith(" and 4 more: off; expected on")
    assert lines[1:] == [f"    try: {REMEDY}", HINT, "512 warning on 64 hosts"]


def test_one_reason_for_which_many_checks_cannot_tell_is_one_cause() -> None:
    reason = "dmesg is not readable"
    unknown = [Finding(host, f"log_{n}", Status.UNKNOWN, actual=reason) for host in HOSTS[:2] for n in range(6)]
    lines = findings_table([*unknown, Finding("node03", "log_1", Status.UNKNOWN, actual="other")]).splitlines()
    assert lines[0].startswith("UNKNOWN  node[01-02]  12 findings of one cause: dmesg is not readable (log_0, log_1")
    assert lines[1:] == ["UNKNOWN  node03  log_1: other", HINT, "13 unknown on 3 hosts"]


def test_a_value_of_its_own_on_each_host_shows_some_and_says_how_many_more() -> None:
    hot = [
        Finding(host, "gpu_temperature", Status.FAILED, "GPU 1", actual=f"{40 + n} C") for n, host in enumerate(HOSTS)
    ]
    lines = findings_table(hot).splitlines()
    assert [line.split(": ")[-1] for line in lines[:8]] == [f"{40 + n} C" for n in range(8)]
    assert lines[8:] == ["    and 56 more findings of gpu_temperature on node[09-64]", HINT, "64 failed on 64 hosts"]


def everything_wrong() -> list[Finding]:
    return [
        Finding(host, f"check_{n:03}", status, f"GPU {gpu}", "drain", "fine", f"{n} {word}", f"repair {n}", f"saw {n}")
        for n in range(150)
        for host in HOSTS
        for gpu in range(2)
        for status, word in [((Status.FAILED, Status.WARNING)[n % 2], host if n % 3 == 0 else "bad")]
    ]


def test_everything_wrong_everywhere_is_two_screens() -> None:
    findings = everything_wrong()
    lines = findings_table(findings).splitlines()
    assert len(lines) <= 48 and lines[-2] == HINT
    assert max(map(len, lines)) < 400
    assert lines[0].startswith("FAILED  node") and any(line.startswith("WARNING") for line in lines)
    # no host and no status is lost
    assert any("more checks: " in line and line.startswith("FAILED  node[01-64]") for line in lines)
    assert len(changes([], findings).splitlines()) <= 48 and len(changes(findings, []).splitlines()) <= 48

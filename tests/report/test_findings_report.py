"""Findings for people, for prologs, and for Prometheus, read back by Prometheus' own parser."""

from prometheus_client.parser import text_string_to_metric_families

from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.report.findings import findings_lines, findings_table, one_line
from nodectl.report.metrics import prometheus

ODD = 'a "quoted" \\ name\nand a line'
FINDINGS = (
    Finding("gpu01", "disk", Status.OK, "/", actual="9000 MiB"),
    Finding("gpu01", "limits", Status.FAILED, "memlock", expected="unlimited", actual="8192", remedy="provision"),
    Finding("gpu02", "limits", Status.FAILED, "memlock", expected="unlimited", actual="8192", remedy="provision"),
    Finding("gpu02", "mtu", Status.WARNING, ODD, actual="1500"),
    Finding("gpu03", "reach", Status.UNKNOWN, actual="no answer"),
)


def test_hosts_that_agree_share_a_line_and_the_worst_come_first() -> None:
    lines = findings_table(FINDINGS).splitlines()
    assert lines[0] == "FAILED  gpu[01-02]  limits: memlock: 8192; expected unlimited"
    assert lines[1].strip() == "try: provision"
    assert lines[2].startswith("UNKNOWN  gpu03") and "disk" not in "".join(lines[:-1])
    assert lines[-1] == "2 failed, 1 unknown, 1 warning, 1 ok on 3 hosts"


def test_what_a_host_printed_is_no_line_of_its_own() -> None:
    lines = findings_table([Finding("gpu01", "mtu", Status.WARNING, "x\nFAILED  gpu02", actual="y\nz")])
    assert lines.splitlines()[0] == "WARNING  gpu01  mtu: x\\nFAILED  gpu02: y\\nz"


def test_prometheus_knows_every_escape() -> None:
    text = prometheus([Finding("a\x1b[2Jb\r", "mtu", Status.FAILED, "\\x\u202e")], {}, time_s=1)
    assert "\x1b" not in text and '"a\\\\x1b[2Jb\\\\r"' in text and '"\\\\x\\\\u202e"' in text
    families = list(text_string_to_metric_families(text))
    hosts = {sample.labels["host"] for family in families for sample in family.samples if "host" in sample.labels}
    assert hosts == {"a\\x1b[2Jb\\r"}


def test_a_prolog_gets_one_line() -> None:
    assert one_line(FINDINGS) == "failed: gpu01 limits: memlock: 8192; gpu02 limits: memlock: 8192"
    assert one_line(FINDINGS[:1]) == "ok: 1 ok on 1 host"
    assert "\n" not in one_line(FINDINGS[3:4])


def test_prometheus_reads_it_back() -> None:
    text = prometheus(FINDINGS, {"gpu01": {"stack": "cpu"}}, time_s=1700000000.1234)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {family.type for family in families.values()} == {"gauge"} and len(families) == 5
    problems = {
        (s.labels["host"], s.labels["check"], s.labels["subject"]): s.value
        for s in families["nodectl_health_problem"].samples
    }
    assert problems[("gpu02", "mtu", ODD)] == 1 and ("gpu01", "disk", "/") not in problems
    states = [s for s in families["nodectl_health_status"].samples if s.value == 1]
    assert {s.labels["host"]: s.labels["status"] for s in states} == {
        "gpu01": "failed",
        "gpu02": "failed",
        "gpu03": "unknown",
    }
    counts = families["nodectl_health_findings"].samples
    assert sum(s.value for s in counts) == len(FINDINGS)
    assert families["nodectl_health_last_run_timestamp_seconds"].samples[0].value == 1700000000.123


def test_equal_findings_are_one_sample() -> None:
    text = prometheus([FINDINGS[1], FINDINGS[1]], {}, time_s=1)
    lines = [line for line in text.splitlines() if line.startswith("nodectl_health_problem{")]
    assert len(lines) == 1, "Prometheus refuses a sample given twice"


def test_what_many_call_for_alike_is_said_once_below_them() -> None:
    remedy = "look at what all share"
    alike = [Finding(f"n{n}", "drift", Status.WARNING, actual=f"{n} %", remedy=remedy) for n in range(3)]
    other = Finding("n9", "drift", Status.WARNING, actual="9 %", remedy="look there")
    lines = findings_lines([*alike, other])
    assert len(lines) == 6
    assert [line.strip() for line in lines if "look" in line] == [f"try: {remedy}", "try: look there"]
    assert "look" in lines[3] and "look" in lines[5]

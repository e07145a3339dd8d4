"""A tool's output that ends too early is no observation: it condemns no machine, wherever it ends."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from nodectl.health.host import REPLAYED, Order, judge_answer, order_of
from nodectl.model.finding import Finding
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.recordings.folder import open_recording
from nodectl.recordings.source import replay_source

PLACES = 7
# what tells of the hardware, in blocks of lines that repeat
KEYS = (
    *("nvidia-smi-q", "nvidia-smi-query", "nvidia-smi-nvlink", "nvidia-smi-topo", "nvidia-smi-p2p", "lspci-acs"),
    *("ib-sysfs", "ibstat", "ibv-devinfo", "units", "modules", "kernel-knobs", "lscpu", "numa", "proc-driver-nvidia"),
)


@cache
def recorded(name: str) -> tuple[Order, Recording]:
    source = replay_source(open_recording(name), None)
    order = order_of(source.hosts[0], {}, (), occasions=REPLAYED)
    recording = source.one(order.host, order.commands)
    assert isinstance(recording, Recording)
    return order, recording


def with_text(recording: Recording, **texts: str) -> Recording:
    entries = {key.replace("_", "-"): text for key, text in texts.items()}
    changed = {key: replace(recording.entries[key], stdout=text) for key, text in entries.items()}
    return replace(recording, entries={**recording.entries, **changed})


def ill(order: Order, recording: Recording) -> dict[str, Finding]:
    findings = judge_answer(order, recording).findings
    return {each.check: each for each in findings if each.status not in (Status.OK, Status.SKIPPED)}


def cuts(text: str) -> Iterator[str]:
    """The text cut within lines and between them."""
    for part in range(1, PLACES):
        at = len(text) * part // PLACES
        yield text[:at]
        yield text[: text.find("\n", at) + 1]


@pytest.mark.parametrize("key", KEYS)
def test_no_end_of_an_output_condemns_a_machine(key: str) -> None:
    order, recording = recorded("dgx-a100")
    for text in cuts(recording.entries[key].stdout):
        for finding in ill(order, with_text(recording, **{key: text})).values():
            assert finding.status is not Status.FAILED, (finding, text[-200:])
            assert finding.action == "none", (finding, text[-200:])


def test_a_report_that_ends_in_a_gpu_while_its_header_and_the_query_name_eight() -> None:
    order, recording = recorded("h100-8")
    report = recording.entries["nvidia-smi-q"].stdout
    sixth = [at for at in range(len(report)) if report.startswith("\nGPU 0000", at)][5]
    found = ill(order, with_text(recording, nvidia_smi_q=report[: sixth + 3000]))
    assert found["gpus"].status is Status.UNKNOWN and found["gpus"].action == "none"
    assert "5; but the header of nvidia-smi -q says 8 and nvidia-smi's query lists 8" in found["gpus"].actual
    assert found["gpu_report"].status is Status.UNKNOWN
    assert {check for check, finding in found.items() if finding.status is Status.FAILED} == set()


def test_a_gpu_less_in_every_source_has_failed() -> None:
    order, recording = recorded("h100-8")
    head, *parts = recording.entries["nvidia-smi-q"].stdout.split("\nGPU 0000")
    report = "\nGPU 0000".join([head.removesuffix("8") + "7", *parts[:7], ""]).removesuffix("GPU 0000")
    rows = recording.entries["nvidia-smi-query"].stdout.splitlines(keepends=True)[:8]
    found = ill(order, with_text(recording, nvidia_smi_q=report, nvidia_smi_query="".join(rows)))["gpus"]
    assert (found.status, found.action) == (Status.FAILED, "reboot")
    assert found.actual.startswith("7; missing: 1 x NVIDIA H100 80GB HBM3; PCI has 8: the driver has not taken 0000:")

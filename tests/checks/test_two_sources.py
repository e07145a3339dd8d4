"""What tells the same thing twice is held against itself: a sick GPU passes by no door that another one would close."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from nodectl.facts.gpus import Gpus
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from tests.checks.test_cut_reports import ill, recorded, with_text
from tests.facts.recorded import Said, fact
from tests.facts.test_gpu_facts import REPORT, TABLE

SECOND = "0000:47:00.0"
LOST_ROW = "1, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]"


def query(change: Callable[[list[str]], list[str]]) -> str:
    return "".join(f"{row}\n" for row in change(TABLE.splitlines()))


@pytest.mark.parametrize(
    ("report", "table", "lost"),
    [
        (REPORT, query(lambda rows: [*rows[:2], LOST_ROW]), SECOND),
        (REPORT, query(lambda rows: [*rows[:2], rows[2].replace("580.95.05", "[GPU is lost]")]), SECOND),
        (REPORT.replace(": ERR!", ": GPU is lost"), TABLE, SECOND),
        (REPORT, (15, query(lambda rows: rows[:2])), "one that nvidia-smi does not name, which ended with 15"),
        ((15, REPORT), TABLE, "one that nvidia-smi does not name, which ended with 15"),
    ],
)
def test_a_gpu_that_any_command_calls_lost_is_lost(report: Said, table: Said, lost: str) -> None:
    gpus = fact("gpus", nvidia_smi_q=report, nvidia_smi_query=table)
    assert isinstance(gpus, Gpus)
    assert gpus.lost == (lost,)
    assert SECOND not in [gpu.bus_id for gpu in gpus.devices if lost == SECOND]


def test_a_query_that_lists_fewer_than_the_report_is_told() -> None:
    gpus = fact("gpus", nvidia_smi_q=REPORT, nvidia_smi_query=query(lambda rows: rows[:2]))
    assert gpus.disputed == "the header of nvidia-smi -q says 3 and nvidia-smi's query lists 1"


def lost_everywhere(recording: Recording) -> str:
    """Each value of the last GPU reads `GPU is lost`."""
    head, _, last = recording.entries["nvidia-smi-q"].stdout.rpartition("\nGPU ")
    rows = last.splitlines()
    told = [f"{row.partition(':')[0]}: GPU is lost" if ": " in row else row for row in rows[1:]]
    return "\n".join([f"{head}\nGPU {rows[0]}", *told, ""])


def test_a_gpu_all_of_whose_values_are_lost_has_failed() -> None:
    order, recording = recorded("h100-8")
    found = ill(order, with_text(recording, nvidia_smi_q=lost_everywhere(recording)))
    assert found["gpu_lost"].status is found["gpus"].status is Status.FAILED
    assert found["gpu_lost"].action == "reboot"


def test_a_driver_that_has_no_device_is_believed_and_nothing_is_called_cut() -> None:
    order, recording = recorded("h100-8")
    keys = [key for key in recording.entries if key.startswith("nvidia-smi")]
    for said, status in (("No devices were found\n", 6), ("", 127)):
        answers = {key: replace(recording.entries[key], stdout=said, exit_status=status) for key in keys}
        found = ill(order, replace(recording, entries={**recording.entries, **answers}))
        assert found["gpus"].status is Status.FAILED
        assert not [each for each in found.values() if "cut" in f"{each.actual} {each.remedy}"]
        assert "reset" not in found["nvlink_active"].remedy


@pytest.mark.parametrize(
    ("key", "change", "words"),
    [
        ("nvidia-smi-query", lambda text: "", "the query cannot be read: nvidia-smi-query: the output is empty"),
        ("nvidia-smi-query", lambda text: text + text.splitlines(keepends=True)[-1], "9"),
        (
            "nvidia-smi-query",
            lambda text: "".join(text.splitlines(keepends=True)[:-1]) + text.splitlines()[1] + "\n",
            "these are two outputs",
        ),
        (
            "nvidia-smi-query",
            lambda text: text.replace("GPU-", "GPU-0", 1)[:-1].replace("GPU-00", "GPU-0f") + "\n",
            "only one of nvidia-smi -q and its query names GPU-0",
        ),
        (
            "nvidia-smi-q",
            lambda text: text + text,
            "only nvidia-smi-query was read: nvidia-smi-q: the report stands twice",
        ),
    ],
)
def test_reports_that_contradict_themselves_or_each_other_are_told(
    key: str, change: Callable[[str], str], words: str
) -> None:
    order, recording = recorded("h100-8")
    assert not {"gpus", "gpu_report"} & ill(order, recording).keys()
    found = ill(order, with_text(recording, **{key: change(recording.entries[key].stdout)}))
    told = [each for check, each in found.items() if check in ("gpus", "gpu_report")]
    assert told and {each.status for each in told} == {Status.UNKNOWN}
    assert any(words in each.actual for each in told)

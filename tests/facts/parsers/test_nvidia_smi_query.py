"""nvidia-smi's CSV: values, refusals, lost GPUs and its own excuses are four different things."""

from __future__ import annotations

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document
from nodectl.facts.parsers.nvidia.smi_query import parse_compute_apps, parse_nvidia_smi_query

TEXT = """\
index, name, memory.total [MiB], power.draw [W], serial, ecc.mode.current, clocks_event_reasons.active, tray
0, NVIDIA H100 80GB HBM3, 81559 MiB, 70.25 W, 0123456789, [N/A], 0x0000000000000001,
Unable to determine the device handle for GPU1: 0000:5F:00.0: Unknown Error
2, NVIDIA H100 PCIe, 81000 MiB, [Unknown Error], 9876543210, Enabled, 0x4, 7
"""
FIRST = {
    "index": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "memory.total": 81559,
    "power.draw": 70.25,
    "serial": "0123456789",
    "ecc.mode.current": None,
    "clocks_event_reasons.active": "0x0000000000000001",
    "tray": None,
}


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "$ nvidia-smi --query-gpu=index,name\n" + TEXT.replace("\n", "\r\n") + "user@host:~$ \n",
        TEXT.replace("2, NV", "2026-01-01 00:00:00 INFO a, b\n\n2, NV"),
        "".join(f"[1,0]<stdout>:{line}\n" for line in TEXT.splitlines()),
        TEXT.replace(" MiB,", ",").replace(" W,", ","),
    ],
    ids=["plain", "shell", "noise", "mpi", "nounits"],
)
def test_rows_refusals_and_lost_gpus(text: str) -> None:
    table = parse_nvidia_smi_query(text)
    first, second = table.gpus
    assert (first.values, first.unavailable) == (FIRST, {"ecc.mode.current": "[N/A]"})
    assert (second.values["power.draw"], second.unavailable) == (None, {"power.draw": "[Unknown Error]"})
    assert (second.values["tray"], second.values["ecc.mode.current"]) == (7, "Enabled")
    assert [lost.bus_id for lost in table.lost] == ["0000:5F:00.0"]


def test_json_has_the_columns_for_keys() -> None:
    document = as_document(parse_nvidia_smi_query(TEXT))
    assert document["gpus"][0]["memory.total"] == 81559
    assert document["gpus"][1]["unavailable"] == {"power.draw": "[Unknown Error]"}
    assert document["lost"] == [
        {
            "bus_id": "0000:5F:00.0",
            "text": "Unable to determine the device handle for GPU1: 0000:5F:00.0: Unknown Error",
        }
    ]


@pytest.mark.parametrize(
    ("line", "bus_id"),
    [
        ("Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error", "0000:5F:00.0"),
        ("Unable to determine the device handle for GPU 0000:01:00.0: Not Found", "0000:01:00.0"),
        ("Unable to determine the device handle for gpu 00000000:af:00.0: GPU is lost.  Reboot", "0000:AF:00.0"),
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error", "0000:25:00.0"),
        ("Unable to determine the device handle for GPU2: Unknown Error", None),
    ],
)
def test_every_form_of_a_lost_gpu(line: str, bus_id: str | None) -> None:
    table = parse_nvidia_smi_query(f"index, name\n{line}\n1, NVIDIA H100\n")
    assert [(lost.bus_id, lost.text) for lost in table.lost] == [(bus_id, line)]
    assert len(table.gpus) == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("0, NVIDIA H100, 81559 MiB\n", "line 1.*no header"),
        ("index, name\n0\n", "line 2.*1 columns"),
        ("index, name\n0, NVIDIA, H100\n", "line 2.*3 columns"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "couldn't communicate"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "version mismatch"),
        ('Field "clocks.nonsense" is not a valid field to query.\n', "clocks.nonsense"),
        ("hello\n", "line 1: 'hello'"),
        ("Unable to determine the device handle for GPU2: Unknown Error\n", "GPU2: Unknown Error"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_query(text)


APPS = """\
timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
2026/07/03 08:33:53.650, GPU-1, 20037, python -c a,b, 538 MiB
2026/07/03 08:33:53.650, GPU-1, 20038, [Not Found], [N/A]
"""


def test_processes_with_commas_and_without_a_name() -> None:
    first, second = parse_compute_apps(APPS).processes
    assert (first.values["pid"], first.values["process_name"], first.values["used_gpu_memory"]) == (
        *(20037, "python -c a, b"),
        538,
    )
    assert second.unavailable == {"process_name": "[Not Found]", "used_gpu_memory": "[N/A]"}


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "empty"), ("No devices were found\n", "No devices"), (APPS + "2026/07/03 08:33:53.650, GPU-1\n", "line 4")],
)
def test_processes_that_are_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_compute_apps(text)


@pytest.mark.parametrize("cell", ["81559 M", "81559 Mi", "71.5 "])
def test_a_unit_that_is_cut(cell: str) -> None:
    text = f"index, memory.total [MiB]\n0, 81559 MiB\n1, {cell}"
    if cell.endswith(" "):
        assert parse_nvidia_smi_query(text).gpus[1].values["memory.total"] == 71.5
        return
    with pytest.raises(ParseError, match=r"line 3: .*the unit of memory.total is cut"):
        parse_nvidia_smi_query(text)

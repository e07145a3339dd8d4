"""nvidia-smi's CSV: values, refusals, lost GPUs and its own excuses are four different things."""

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.parsers.nvidia_smi_query import parse_nvidia_smi_query

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
TEXT = """\
index, name, memory.total [MiB], power.draw [W], serial, ecc.mode.current
0, NVIDIA H100 80GB HBM3, 81559 MiB, 70.25 W, 0123456789, [N/A]
Unable to determine the device handle for GPU1: 0000:5F:00.0: Unknown Error
2, NVIDIA H100 PCIe, 81000 MiB, [Unknown Error], 9876543210, Enabled
"""


def test_rows_refusals_and_lost_gpus() -> None:
    table = parse_nvidia_smi_query(TEXT)
    first, second = table.gpus
    assert first.values == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "memory.total": 81559,
        "power.draw": 70.25,
        "serial": "0123456789",
        "ecc.mode.current": None,
    }
    assert first.unavailable == {"ecc.mode.current": "[N/A]"}
    assert (second.values["power.draw"], second.unavailable) == (None, {"power.draw": "[Unknown Error]"})
    assert [bus_id for bus_id, _ in table.lost] == ["0000:5F:00.0"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "printed nothing"),
        ("0, NVIDIA H100, 81559 MiB\n", "no header"),
        ("index, name\n0\n", "line 2.*1 columns"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "couldn't communicate"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_query(text)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples of real machines are not beside this checkout")
def test_samples_of_real_machines() -> None:
    files = sorted(SAMPLES.glob("nvidia-smi-query-gpu-*csv-*.txt"))
    tables = {path.name: parse_nvidia_smi_query(path.read_text()) for path in files}
    assert len(tables["nvidia-smi-query-gpu-csv-8xh200-570.txt"].gpus) == 8
    assert all(row.values["name"] for table in tables.values() for row in table.gpus)

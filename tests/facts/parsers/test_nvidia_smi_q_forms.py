"""nvidia-smi -q of any machine: what is rendered is read back, the XML gives what the text gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.smi_q.fields import GpuProcess, GpuStatus
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from tests.facts.parsers.nvidia_smi_machines import REASONS, as_text, as_xml, machines

XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<driver_version>535.54.03</driver_version>
\t<attached_gpus>2</attached_gpus>
\t<gpu id="00000000:0F:00.0">
\t\t<product_name>NVIDIA A100</product_name>
\t\t<fb_memory_usage>
\t\t\t<total>81920 MiB</total>
\t\t</fb_memory_usage>
\t</gpu>
\t<gpu id="00000000:1F:00.0">
\t\t<product_name>NVIDIA A100</product_name>
\t</gpu>
</nvidia_smi_log>
"""


def check(gpu: GpuStatus, made: dict[str, Any]) -> None:
    assert gpu.bus_id == made["bus_id"]
    assert {name: getattr(gpu, name) for name in made["values"]} == made["values"]
    assert {name: word for name, word in gpu.unavailable.items() if name in made["values"]} == made["refused"]
    assert gpu.clock_event_reasons == tuple(name for name, _, _ in REASONS if name in made["reasons"])
    none = {"gpu_instance_id": "N/A", "compute_instance_id": "N/A"}
    assert gpu.processes == tuple(
        GpuProcess(pid, kind, name, memory_mib, unavailable=none) for pid, kind, name, memory_mib in made["processes"]
    )


@settings(max_examples=25, deadline=None)
@given(machines)
def test_what_is_rendered_is_read_back(machine: list[dict[str, Any]]) -> None:
    text, xml = parse_nvidia_smi_q(as_text(machine)), parse_nvidia_smi_q(as_xml(machine))
    assert len(text.gpus) == text.attached_gpus == len(machine)
    for gpu, made in zip(text.gpus, machine, strict=True):
        check(gpu, made)
    assert xml == text


@pytest.mark.parametrize(
    "text",
    [
        XML,
        "$ nvidia-smi -q -x\n" + XML + "done\n",
        XML.replace("\n", "\r\n"),
        "".join(f"[1,0]<stdout>:{line}\n" for line in XML.splitlines()),
        XML.replace("\t<gpu", "2026-07-03 INFO <job> & more\n\t<gpu"),
        XML.replace("</gpu>", "<processes><process_info><pid>1</pid><type>C</type><process_name>a && b</process_name>\n"
                    "<used_memory>1 MiB</used_memory></process_info></processes></gpu>"),
        XML + XML,
        XML.replace("</nvidia_smi_log>\n", ""),
        XML[: XML.index("\t</gpu>\n</nvidia")],
    ],
    ids=["plain", "around", "crlf", "mpi", "between", "unescaped", "twice", "cut", "cut in a GPU"],
)  # fmt: skip
def test_xml_as_it_is_found(text: str) -> None:
    found = parse_nvidia_smi_q(text)
    assert [(gpu.bus_id, gpu.name) for gpu in found.gpus] == [
        ("0000:0F:00.0", "NVIDIA A100"),
        ("0000:1F:00.0", "NVIDIA A100"),
    ]
    assert (found.gpus[0].memory_total_mib, found.gpus[1].memory_total_mib, found.attached_gpus) == (81920, None, 2)


def test_xml_with_a_lost_gpu_and_a_warning() -> None:
    lost = "Unable to determine the device handle for GPU1: 0000:2F:00.0: Unknown Error\n"
    found = parse_nvidia_smi_q(lost + XML + "WARNING: infoROM is corrupted at gpu 0000:1F:00.0\n")
    assert [each.bus_id for each in found.lost] == ["0000:2F:00.0"]
    assert found.warnings == ("WARNING: infoROM is corrupted at gpu 0000:1F:00.0",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (XML[: XML.index("920 MiB")], "line 9.*cut"),
        (XML[: XML.index("_memory_usage>")], "line 8"),
        (XML.replace("00000000:0F:00.0", "0F"), "line 6.*PCI address"),
        (XML.replace("81920 MiB", "many"), "line 9.*no number"),
        (XML.replace("</fb_memory_usage>", "</fb>"), "line 10"),
        (
            '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<nvidia_smi_log><gpu id="&b;"/>',
            "undefined entity",
        ),
        ("<nvidia_smi_log>" + "<a>" * 100, "nested too deep"),
        ("<nvidia_smi_log>\n<attached_gpus>8</attached_gpus>\n</nvidia_smi_log>", "no 'GPU <bus id>'"),
    ],
)
def test_xml_that_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_q(text)

"""nvidia-smi -q of any machine: what is rendered is read back, the XML gives what the text gives."""

from __future__ import annotations

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from tests.facts.parsers.tool_outputs import recorded_text

XML = recorded_text("nvidia-smi-q-forms-xml.txt")


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

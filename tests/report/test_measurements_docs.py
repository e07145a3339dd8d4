"""The page of the probes shows what a probe prints."""

import re
from pathlib import Path

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.registry import kind_of
from nodectl.report.measurements import measurements_text

PAGE = Path(__file__).parents[2] / "docs" / "probes.md"
NAMES = [f"node{number:02d}" for number in range(1, 9)]


def path(sender: str, receiver: str, value: float, **more: object) -> Measurement:
    is_slow = "node03" in (sender, receiver)
    given = {"streams": 1, "congestion": "bbr", "retransmits": 12 if is_slow else 0, "interfaces": ["eth0", "eth0"]}
    return Measurement("tcp", (sender, receiver), value, "Gbit/s", f"{sender} -> {receiver}", None, 0.01, given | more)


def test_the_page_shows_what_is_printed() -> None:
    measured, again = [], []
    for sender, receiver in ((a, b) for a in NAMES for b in NAMES if a != b):
        if sender == "node03" or receiver == "node03":
            measured.append(path(sender, receiver, 4.2 if sender == "node03" else 4.25))
            again.append(path(sender, receiver, 4.3, again=1))
        else:
            measured.append(path(sender, receiver, 9.43 if (sender, receiver) == ("node08", "node07") else 9.41))
    slow = Finding("node03", "tcp", Status.FAILED, actual="slow", kind="host", hosts=("node03",))
    shown = measurements_text([*measured, *again], kind_of, [slow])
    (page,) = re.findall(r"test_measurements_docs.py -->\n```\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert page == shown

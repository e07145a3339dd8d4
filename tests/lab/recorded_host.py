"""A fleet that was never up: bundled recordings as lab hosts would say them, with and without faults."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from nodectl.checks.counters import Previous
from nodectl.checks.fleet.compare import compare
from nodectl.checks.judge import after_causes
from nodectl.common.resources import recordings_dir
from nodectl.health.host import REPLAYED, HostHealth, Order, judge_answer, order_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording
from nodectl.model.status import Status
from nodectl.recordings.mask import Template
from tests.lab.recorded_faults import Output, spoiled

_HOSTS = ("node01", "node02", "node03", "node04")
_NOW = 1_800_000_000.0


@cache
def bundled(name: str) -> dict[str, Output]:
    """The recording's outputs, as a dressed host keeps them."""
    folder = recordings_dir() / name / "node01"
    ends = {each["key"]: each["exit_status"] for each in json.loads((folder / "index.json").read_text("utf-8"))}
    found = {}
    for key, status in ends.items():
        complaint = folder / f"{key}.err"
        stderr = complaint.read_text("utf-8") if complaint.exists() else ""
        found[key] = Output((folder / f"{key}.out").read_text("utf-8"), stderr, status)
    return found


@cache
def _fleet(name: str) -> dict[str, dict[str, Output]]:
    """One host as it was recorded, the others with identities and addresses of their own."""
    outputs = bundled(name)
    template = Template.of({key: output.stdout for key, output in outputs.items()})
    fleet = {_HOSTS[0]: outputs}
    for number, host in enumerate(_HOSTS[1:], start=12):
        texts = template.filled(host)
        texts["ip-address"] = re.sub(r'("local":"10\.[\d.]+\.)11"', rf'\g<1>{number}"', texts["ip-address"])
        fleet[host] = {key: replace(output, stdout=texts[key]) for key, output in outputs.items()}
    return fleet


def another_machine(recorded: Path, folder: Path) -> None:
    """Copy a recorded host as another machine of its kind: what it is known by is its own."""
    shutil.copytree(recorded, folder)
    texts = {path.name: path.read_text("utf-8") for path in recorded.glob("*.out")}
    for name, text in Template.of(texts).filled(folder.name).items():
        (folder / name).write_text(text, "utf-8")


def peer_of(name: str, host: str) -> dict[str, Output]:
    """The outputs of another host, which a clone has."""
    return next(outputs for other, outputs in _fleet(name).items() if other != host)


def findings(name: str, kinds: Mapping[str, Sequence[str]]) -> list[Finding]:
    """What health says beyond that all is well, at its second look; `kinds` of faults by host came between the two."""
    looks = [_second_look(name, host, tuple(kinds.get(host, ()))) for host in _fleet(name)]
    found = [each for look in looks for each in look.findings]
    found += compare([look.member for look in looks if look.member is not None])
    found = [each for host in _fleet(name) for each in after_causes([one for one in found if one.host == host])]
    return [each for each in found if each.status not in (Status.OK, Status.SKIPPED)]


# the hosts without a fault are the same for every kind
@lru_cache(maxsize=64)
def _second_look(name: str, host: str, kinds: tuple[str, ...]) -> HostHealth:
    outputs = spoiled(_fleet(name)[host], kinds, peer_of(name, host))
    return judge_answer(_order(name, host, _first_reading(name, host)), _recording(host, outputs))


@cache
def _first_reading(name: str, host: str) -> Previous | None:
    return judge_answer(_order(name, host, None), _recording(host, _fleet(name)[host], ago_s=600.0)).reading


def _order(name: str, host: str, previous: Previous | None) -> Order:
    names = {"hardware": name, "stack": "cu128", "tuning": "stock"}
    return order_of(Host(host, host), names, (), previous, occasions=REPLAYED)


def _recording(host: str, outputs: Mapping[str, Output], *, ago_s: float = 0.0) -> Recording:
    entries = {
        key: Entry(key, (key,), output.exit_status, output.stdout, output.stderr, 0.01)
        for key, output in outputs.items()
    }
    return Recording(host, entries, 0.0, 0.01, recorded="bundled", time=_NOW - ago_s)
